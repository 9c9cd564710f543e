"""From drafts to documents in the collection: embedded together, made visible one by one.

1. The KV of a document goes to the disk, where nobody looks for it yet.
2. One transaction makes the document visible, and takes its older version away.
3. The KV of the older version's chunks that nobody has now is deleted.

One that is killed before 2 leaves files that `cache prune` finds and the next ingest writes again. What was still to be
done at 3 the catalog tells the next ingest (`catalog.orphans`). The indexes follow SQL; they are only saved here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from app.ingestion import IngestTally
from app.ingestion.capture import KvCapture, KvRemoval, count_kv
from app.ingestion.draft import OF_A_BATCH, OF_A_TEXT, Check, ChunkVectors, Draft, uncut
from app.ingestion.draft import draft as cut
from app.ingestion.room import DiskCheck, KvRoom
from app.ingestion.stages import FileStages
from app.ingestion.survey import Pending
from app.ingestion.worker import FileStamp, ReadFile
from app.library import Library
from app.library.arrangement import CollectionArrangement
from app.library.catalog.records import Collection, DocumentRecord, Removed
from app.library.order import SHORT
from app.models import Models
from app.models.embedding import embed_chunks, in_parts
from retriever.sentences import Packed
from retriever.shared_property import shared_property
from splitter.base import Splitter
from splitter.documents import way

# Chunks that are embedded together. Twice as many are no faster, and what is embedded and not yet written is lost when
# the process is stopped. Beside the KV, embedding takes next to no time, so a document is written when it is read.
TOGETHER = 128
TOUCHED = 500  # documents per transaction
FOLLOW = 4096  # chunks after which the indexes catch up, so that the end does not take long
# A long document tells how far it is after so many chunks. The KV takes most of its time, where it is computed.
STEP = 2048
EMBEDDING = 0.1  # of a document's time, where its KV is computed too
Advance = Callable[[int], None]  # told how many bytes of the file that is being added are done
Tell = Callable[[float], None]  # the same as a share


class Writer:
    def __init__(
        self,
        library: Library,
        models: Models,
        collection: Collection,
        tally: IngestTally,
        room: KvRoom,
        disks: DiskCheck,
        advance: Advance,
        stages: FileStages | None,
        check: Check,
    ):
        self._library, self._models = library, models
        self._advance, self._stages, self._check = advance, stages or FileStages(), check
        self._collection, self._tally, self._room, self._disks = collection, tally, room, disks
        self._removal = KvRemoval(library, models, collection, tally)
        self._drafts: list[tuple[Pending, Draft]] = []
        self._touched: list[tuple[int, int, int]] = []
        self._in_parts = 0  # chunks
        self._behind = 0  # changes that the indexes have not seen
        self.bound = False  # whether a document was cut, so that the collection keeps its splitter

    # -- made when the first document comes -------------------------------------------------------------------------

    @shared_property
    def _capture(self) -> KvCapture:
        return KvCapture(self._library, self._models, self._collection, self._tally, self._room)

    @shared_property
    def _arrangement(self) -> CollectionArrangement:
        return CollectionArrangement(self._library, self._collection)

    @shared_property
    def _splitter(self) -> Splitter:
        return self._library.splitter(self._collection, check=self._check)

    # -- file by file -----------------------------------------------------------------------------------------------

    def add(self, file: Pending, read: ReadFile) -> None:
        """The document is in after this call or a later one, at the latest after `flush`.

        Splitting happens here and not where the file was read: it needs the tokenizer, and the embedder too. It takes
        linear time, and what a text does to it costs that file.
        """
        self._stages.reached("read", 1, 1)
        captures = self._room.now and bool(self._capture)  # a model that cannot be loaded is told before the work
        splitter = self._splitter
        try:
            draft = cut(file.source, read.stamp, read.parsed, splitter)
        except OF_A_TEXT as error:
            self._give_up(file, error)
        except OF_A_BATCH as error:  # of the embedder, by which sentences are compared
            if not self._embeds():
                raise
            self._give_up(file, error)
        else:
            self._take(file, draft, alone=captures and len(draft.pieces) > SHORT)

    def _take(self, file: Pending, draft: Draft, alone: bool) -> None:
        """Short documents wait for others, which they may stand behind; a long one, whose KV takes long, does not."""
        self._stages.reached("split", len(draft.pieces), len(draft.pieces))
        self._disks.check(draft.record.text, len(draft.pieces))

        def tell(share: float) -> None:
            self._advance(int(share * file.size))

        if alone:
            self._embed([(file, draft)], tell)
            return
        self._drafts.append((file, draft))
        if sum(len(one.pieces) for _, one in self._drafts) >= TOGETHER:
            self._embed(self._taken(), tell)

    def _taken(self) -> list[tuple[Pending, Draft]]:
        drafts, self._drafts = self._drafts, []
        return drafts

    def touch(self, file: Pending, stamp: FileStamp) -> None:
        """The content is what it was, so the next ingest need not read it. What KV it lacks may have been put off."""
        assert file.state is not None
        self._touched.append((file.state.id, stamp.size, stamp.mtime_ns))
        if len(self._touched) >= TOUCHED:
            self._touch()
        if self._room.turn.goes_on:
            whole = self._room.now and self._capture.go_on(file.state.id, self._stages, self._check)
            count_kv(self._room, self._tally, whole)

    def fail(self, file: Pending, stamp: FileStamp, reason: str) -> None:
        """The file no longer says what its document said, so that goes."""
        record = DocumentRecord(file.source, stamp.content_hash, stamp.size, stamp.mtime_ns, "", "", "")
        self._forget(self._library.catalog.documents.fail(self._collection, record, reason))

    def prune(self, document_ids: Sequence[int]) -> int:
        removed = self._library.catalog.documents.delete(self._collection, document_ids) if document_ids else Removed()
        self._forget(removed)
        return removed.documents

    def flush(self) -> None:
        """Everything that was added is in when this returns."""
        self._embed(self._taken())
        self._touch()
        lost, again = self._removal.finish(), self._room.mode != "off" and not self._room.put_off
        if lost and again and self._room.now:
            again = self._capture.renew(self._collection, lost, self._check)
        elif lost and again:  # on use
            self._tally.note(
                f"{len(lost)} chunks had seen texts that are gone, and lost their KV: answers compute it again, or "
                f"`ragcache cache warm -c {shlex.quote(self._collection.name)}` does at once"
            )
        self._removal.settle(lost if again else ())

    def finish(self) -> None:
        """Indexes that are up to date, and saved where a start would take long to catch up."""
        self.flush()
        if self._in_parts:
            self._tally.note(in_parts(self._models.embedder, self._in_parts))
        if self._behind:
            searcher = self._library.searcher(self._collection)
            searcher.catch_up()
            searcher.save_if_due()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _embed(self, drafts: Sequence[tuple[Pending, Draft]], tell: Tell = lambda share: None) -> None:
        """`tell` is of the last draft's file."""
        if not drafts:
            return
        try:
            vectors, sentences = self._vectors([draft for _, draft in drafts], tell)
        except OF_A_BATCH as error:
            self._embed_each(drafts, error)
            return
        ends = list(accumulate(len(draft.pieces) for _, draft in drafts))
        of_each = [slice(end - len(draft.pieces), end) for end, (_, draft) in zip(ends, drafts, strict=True)]
        chosen = self._with_kv([draft for _, draft in drafts])
        if chosen:
            known = [file.state.id for file, _ in drafts if file.state]
            order = self._arrangement.begin([vectors[of_each[place]] for place in chosen], known)
            for stand in order:
                (file, draft), own = drafts[chosen[stand]], of_each[chosen[stand]]
                self._write(file, draft, (vectors[own], sentences[own]), stand, tell)
        for place, (file, draft) in enumerate(drafts):
            if place not in chosen:
                own = of_each[place]
                self._write(file, draft, (vectors[own], sentences[own]), None, tell)

    def _with_kv(self, drafts: Sequence[Draft]) -> list[int]:
        """Which of them get their KV now."""
        if self._room.mode != "auto":
            return list(range(len(drafts))) if self._room.now else []
        if not self._room.now:
            self._room.short()
            return []
        return [place for place, fits in enumerate(self._room.choose(map(self._kv_bytes, drafts))) if fits]

    def _kv_bytes(self, draft: Draft) -> int:
        try:
            return self._room.nbytes(draft.wanted_texts(self._check))
        except OF_A_TEXT:
            return 0  # it will not be written

    def _embed_each(self, drafts: Sequence[tuple[Pending, Draft]], error: Exception) -> None:
        """After a batch that failed: the files that others are not to suffer for are found one by one."""
        if len(drafts) > 1:
            for one in drafts:
                self._embed([one])
        elif self._embeds():
            self._give_up(drafts[0][0], error)
        else:
            raise error

    def _embeds(self) -> bool:
        """Whether the embedder works at all."""
        try:
            return len(self._models.embedder.embed(["word"])) == 1
        except OF_A_BATCH:
            return False

    def _give_up(self, file: Pending, error: Exception) -> None:
        """Without a stamp: another version of this program may do better, so the next ingest tries again."""
        self._tally.failed.append(uncut(file, error))
        self._room.came(file)

    def _vectors(self, drafts: Sequence[Draft], tell: Tell) -> ChunkVectors:
        """Of all pieces."""
        headed = [one for draft in drafts for one in draft.headed()]
        share = EMBEDDING if self._room.now else 1.0
        parts, sentences = [], list[Packed]()
        for start in range(0, max(1, len(headed)), STEP):
            vectors, long = embed_chunks(self._models.embedder, headed[start : start + STEP])
            parts.append(vectors)
            sentences += self._models.sentences.packed([text for _, text in headed[start : start + STEP]])
            self._in_parts += long
            done = min(start + STEP, len(headed))
            self._stages.reached("embedded", done, len(headed), last=not self._room.now)
            if start + STEP < len(headed):
                tell(share * (start + STEP) / len(headed))
        return np.concatenate(parts), sentences

    def _write(self, file: Pending, draft: Draft, vectors: ChunkVectors, place: int | None, tell: Tell) -> None:
        """`place`: of the document among those of its batch that get their KV now."""

        def captured(share: float) -> None:
            tell(EMBEDDING + (1 - EMBEDDING) * share)
            self._stages.reached("kv", round(share * len(draft.pieces)), len(draft.pieces), last=True)

        template = self._models.template
        try:
            chunks = draft.chunks(template, vectors, self._check)
        except OF_A_TEXT as error:
            self._give_up(file, error)
            return
        placed = None if place is None else self._arrangement.standing(place)
        whole = placed is not None and self._capture.capture(draft, chunks, placed.standing, captured)
        if whole:
            self._stages.reached("kv", len(chunks), len(chunks), last=True)
        older = None if self.bound else self._library.other_splitter(self._collection)
        documents = self._library.catalog.documents
        standing = placed.standing if placed else None
        replaced = documents.replace(self._collection, draft.record, chunks, bind=older is not None, standing=standing)
        if placed and place is not None:
            self._arrangement.added(place, replaced.document_id, placed)
            self._capture.record(self._collection)
        self.bound = True
        if older:
            told = f"files are cut by {self._collection.splitter!r} from now on, not by {older!r}"
            self._tally.note(f"{told}; documents that were in keep their chunks")
        self._tally.document(file.is_ready, draft.record.size, len(chunks), sum(chunk.tokens for chunk in chunks))
        count_kv(self._room, self._tally, whole)
        self._room.came(file)
        self._tally.cut(way(self._collection.splitter, draft.parsed.kind, any(piece.heading for piece in draft.pieces)))
        self._behind += len(chunks)
        self._forget(replaced.removed)
        sentences = [chunk.sentences for chunk in chunks]
        self._library.catalog.sentences.add_rest(self._collection, replaced.chunk_ids, sentences)

    def _forget(self, removed: Removed) -> None:
        """After the commit: what hung on chunks that are gone, and the indexes when they are far behind."""
        self._removal.drop(removed.orphans)
        self._behind += removed.chunks
        if self._behind >= FOLLOW:
            self._library.searcher(self._collection).catch_up()
            self._behind = 1  # not 0: they are still to be saved

    def _touch(self) -> None:
        touched, self._touched = self._touched, []
        self._library.catalog.documents.touch(touched)
