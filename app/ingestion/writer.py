"""From drafts to documents in the collection: embedded together, made visible one by one.

1. The KV of a document goes to the disk, where nobody looks for it yet.
2. One transaction makes the document visible, and takes its older version away.
3. The KV of the older version's chunks that nobody has now is deleted.

A process that is killed before 2 leaves files that `ragcache cache prune` finds and the next ingest writes again, and
one killed before 3 the same. The indexes follow SQL by themselves; they are only saved here.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from app.ingestion import IngestTally
from app.ingestion.draft import ChunkVectors, Draft, uncut
from app.ingestion.draft import draft as cut
from app.ingestion.survey import Pending
from app.ingestion.worker import FileStamp, ReadFile
from app.library import Library
from app.library.catalog.records import Collection, DocumentRecord, Removed
from app.library.kv import Identity, drop_chunks, identities_to_drop, recorded_identities
from app.models import Models
from app.models.embedding import embed_chunks, in_parts
from ragcache.errors import PromptError, StoreError
from ragcache.types import Chunk
from retriever.sentences import Packed
from retriever.shared_property import shared_property
from splitter import SplitterError, way
from splitter.base import Splitter

# Chunks that are embedded together. Twice as many are no faster, and what is embedded and not yet written is lost when
# the process is stopped. Beside the KV, embedding takes next to no time, so a document is written when it is read.
TOGETHER = 128
TOUCHED = 500  # documents per transaction
FOLLOW = 4096  # chunks after which the indexes catch up, so that the end does not take long
# A long document tells how far it is after so many chunks. The KV takes most of its time, where it is computed.
STEP = 2048
EMBEDDING = 0.1  # of a document's time, where its KV is computed too
# What a single text can do to a splitter and a tokenizer, and to a model, which also fails in these ways as a whole.
OF_A_TEXT = (SplitterError, PromptError, RecursionError, MemoryError)
OF_A_BATCH = (ValueError, LookupError, RuntimeError, MemoryError)
Advance = Callable[[int], None]  # told how many bytes of the file that is being added are done
Tell = Callable[[float], None]  # the same as a share
log = logging.getLogger(__name__)


class Writer:
    def __init__(
        self, library: Library, models: Models, collection: Collection, tally: IngestTally, kv: bool, advance: Advance
    ):
        self._library, self._models = library, models
        self._advance = advance
        self._collection = collection
        self._tally = tally
        self._kv = kv
        self._removal = KvRemoval(library, models, tally)
        self._drafts: list[tuple[Pending, Draft]] = []
        self._touched: list[tuple[int, int, int]] = []
        self._in_parts = 0  # chunks
        self._behind = 0  # changes that the indexes have not seen
        self.bound = False  # whether a document was cut, so that the collection keeps its splitter

    # -- made when the first document comes -------------------------------------------------------------------------

    @shared_property
    def _capture(self) -> KvCapture | None:
        if not self._kv:
            return None
        if not self._library.settings.disk_bytes:
            self._tally.note("no KV is kept, since RAGCACHE_DISK_BYTES is 0")
            return None
        return KvCapture(self._library, self._models, self._collection, self._tally)

    @shared_property
    def _splitter(self) -> Splitter:
        return self._library.splitter(self._collection)

    # -- file by file -----------------------------------------------------------------------------------------------

    def add(self, file: Pending, read: ReadFile) -> None:
        """The document is in after this call or a later one, at the latest after `flush`.

        Splitting happens here and not where the file was read: it needs the tokenizer, and the embedder too. It takes
        linear time, and what a text does to it costs that file.
        """
        together = 1 if self._capture else TOGETHER  # a model that cannot be loaded is told before the work
        splitter = self._splitter
        try:
            self._drafts.append((file, cut(file.source, read.stamp, read.parsed, splitter)))
        except OF_A_TEXT as error:
            self._give_up(file, error)
        except OF_A_BATCH as error:  # of the embedder, by which sentences are compared
            if not self._embeds():
                raise
            self._give_up(file, error)
        if sum(len(one.pieces) for _, one in self._drafts) >= together:
            self._embed(lambda share: self._advance(int(share * file.size)))

    def touch(self, file: Pending, stamp: FileStamp) -> None:
        """The content is what it was, so the next ingest need not read it."""
        assert file.state is not None
        self._touched.append((file.state.id, stamp.size, stamp.mtime_ns))
        if len(self._touched) >= TOUCHED:
            self._touch()

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
        self._embed()
        self._touch()

    def finish(self) -> None:
        """Indexes that are up to date and saved, so that the first question need not wait."""
        self.flush()
        if self._in_parts:
            self._tally.note(in_parts(self._models.embedder, self._in_parts))
        if self._behind:
            searcher = self._library.searcher(self._collection)
            searcher.catch_up()
            searcher.save()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _embed(self, tell: Tell = lambda share: None) -> None:
        """`tell` is of the last draft's file. Where KV is computed, those before it are empty."""
        drafts, self._drafts = self._drafts, []
        if not drafts:
            return
        try:
            vectors, sentences = self._vectors([draft for _, draft in drafts], tell)
        except OF_A_BATCH as error:
            self._embed_each(drafts, error)
            return
        start = 0
        for file, draft in drafts:
            end = start + len(draft.pieces)
            self._write(file, draft, (vectors[start:end], sentences[start:end]), tell)
            start = end

    def _embed_each(self, drafts: Sequence[tuple[Pending, Draft]], error: Exception) -> None:
        """After a batch that failed: the files that others are not to suffer for are found one by one."""
        if len(drafts) > 1:
            for one in drafts:
                self._drafts = [one]
                self._embed()
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

    def _vectors(self, drafts: Sequence[Draft], tell: Tell) -> ChunkVectors:
        """Of all pieces."""
        headed = [one for draft in drafts for one in draft.headed()]
        share = EMBEDDING if self._capture else 1.0
        parts, sentences = [], list[Packed]()
        for start in range(0, max(1, len(headed)), STEP):
            vectors, long = embed_chunks(self._models.embedder, headed[start : start + STEP])
            parts.append(vectors)
            sentences += self._models.sentences.packed([text for _, text in headed[start : start + STEP]])
            self._in_parts += long
            if start + STEP < len(headed):
                tell(share * (start + STEP) / len(headed))
        return np.concatenate(parts), sentences

    def _write(self, file: Pending, draft: Draft, vectors: ChunkVectors, tell: Tell) -> None:
        def captured(share: float) -> None:
            tell(EMBEDDING + (1 - EMBEDDING) * share)

        template = self._models.template
        try:
            chunks = draft.chunks(template, vectors)
        except OF_A_TEXT as error:
            self._give_up(file, error)
            return
        if self._capture:
            self._capture.capture(draft, captured)
        older = None if self.bound else self._library.other_splitter(self._collection)
        documents = self._library.catalog.documents
        replaced = documents.replace(self._collection, draft.record, chunks, bind=older is not None)
        self.bound = True
        if older:
            told = f"files are cut by {self._collection.splitter!r} from now on, not by {older!r}"
            self._tally.note(f"{told}; documents that were in keep their chunks")
        tokens = sum(chunk.tokens for chunk in chunks)
        self._tally.document(file.is_ready, draft.record.size, len(chunks), tokens)
        headed = any(piece.heading for piece in draft.pieces)
        self._tally.cut(way(self._collection.splitter, draft.parsed.kind, headed))
        self._behind += len(chunks)
        self._forget(replaced.removed)

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


def lacking(collection: Collection) -> str:
    return (
        "documents that were in before have no KV of this model and system prompt: "
        f"`ragcache cache warm -c {shlex.quote(collection.name)}` computes it"
    )


class KvCapture:
    """Loads the model when it is made. Raises ConfigError and ModelError then, StoreError when KV cannot be kept."""

    def __init__(self, library: Library, models: Models, collection: Collection, tally: IngestTally):
        self._cache = models.cache
        self._template = models.language.template
        self._system = self._template.system()
        self._tally = tally
        self._evictions = self._count_evictions()
        self._remember(library, collection)

    def capture(self, draft: Draft, tell: Callable[[float], None]) -> None:
        """All of a document, which part of it being told. The files are on the disk when this returns."""
        try:
            for variant in self._cache.ingest(self._system, self._segments(draft, tell)):
                self._tally.kv_variants += 1
                self._tally.kv_bytes += variant.nbytes
        except PromptError as error:
            # The document itself is sound, and its chunks are found; answers compute what is not there.
            self._tally.note(f"some documents have no KV, or not for all of their chunks: {error}")
        if self._count_evictions() > self._evictions:
            self._tally.note("the KV cache was full, and older KV made room for new: raise RAGCACHE_DISK_BYTES")

    def _segments(self, draft: Draft, tell: Callable[[float], None]) -> Iterator[Chunk]:
        for place, segment in enumerate(draft.segments(self._template)):
            tell(place / len(draft.pieces))
            yield segment

    def _remember(self, library: Library, collection: Collection) -> None:
        """What the collection's KV belongs to; that of documents which are in already may belong to something else."""
        now = Identity(self._cache.engine.spec.fingerprint, self._system.hash)
        if (collection.engine_fingerprint, collection.system_hash) == (now.fingerprint, now.system):
            return
        library.catalog.collections.set_engine(collection, now.fingerprint, now.system)
        if library.catalog.source(collection).position().live:
            self._tally.note(lacking(collection))

    def _count_evictions(self) -> int:
        return self._cache.store.kept.evictions


class KvRemoval:
    """The KV of chunks that nobody has any more. Make it before the collection's engine changes."""

    def __init__(self, library: Library, models: Models, tally: IngestTally):
        self._library, self._models = library, models
        self._tally = tally
        self._recorded = recorded_identities(library)
        self._identities: set[Identity] | None = None

    def drop(self, orphans: Iterable[str]) -> None:
        """After the commit: what this leaves behind, `ragcache cache prune` finds."""
        chunks = list(orphans)
        if not chunks:
            return
        try:
            if self._identities is None:
                self._identities = identities_to_drop(self._library, self._models)
                if self._identities:
                    self._identities |= self._recorded
            drop_chunks(self._models, self._identities, chunks)
        except StoreError as error:
            log.warning("KV of documents that are gone was not deleted: %s", error)
            self._tally.note("not all KV of documents that are gone could be deleted: `ragcache cache prune` does it")
