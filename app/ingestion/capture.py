"""The KV of the documents that an ingest writes, and the end of that of documents which it takes away."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from app.errors import CatalogError
from app.ingestion import IngestTally
from app.ingestion.draft import Check, Draft
from app.ingestion.room import KvRoom
from app.ingestion.stages import FileStages
from app.library import Library
from app.library.arrangement import chunks_before
from app.library.catalog.records import ChunkRecord, Collection
from app.library.identities import Identity, recorded_identities
from app.library.kv import EverybodysContexts
from app.library.kv_removal import KvLoss, drop_chunks, identities_to_drop, lose_traces, traced
from app.library.order import SHORT, Standing
from app.models import Models
from ragcache.errors import PromptError, StoreError, StoreFull
from ragcache.types import Chunk, Variant
from retriever.shared_property import shared_property

if TYPE_CHECKING:
    from app.cachecare.warming import Warmer

log = logging.getLogger(__name__)


def lacking(collection: Collection) -> str:
    return (
        "documents that were in before have no KV of this model and system prompt: "
        f"`ragcache cache warm -c {shlex.quote(collection.name)}` computes it"
    )


def count_kv(room: KvRoom, tally: IngestTally, whole: bool) -> None:
    """Of a document that is in: whether it waits for answers to compute what it lacks."""
    if not whole and room.mode != "off" and not room.put_off:
        room.short()
        tally.on_use += 1


def note_kv(room: KvRoom, tally: IngestTally, collection: Collection, unchanged: int) -> None:
    """At the end of an ingest: which documents have none yet."""
    if room.asked in ("auto", "eager") and room.mode == "on-use" and tally.on_use:
        tally.note("no KV is kept on the disk, since RAGCACHE_DISK_BYTES is 0")
    elif room.mode == "eager" and collection.engine_fingerprint is None and unchanged:
        tally.note(lacking(collection))
    elif room.mode == "auto" and tally.on_use:
        number = "1 document has" if tally.on_use == 1 else f"{tally.on_use:,} documents have"
        tally.note(
            f"{number} KV on use, as answers find the chunks, since all of it did not fit: {room.remedy} and let "
            f"`ragcache cache warm -c {shlex.quote(collection.name)}` compute it at once"
        )


class KvCapture:
    """Loads the model when it is made. Raises ConfigError and ModelError then, StoreError when KV cannot be kept: where
    all of it is to be there, also when it has no room.
    """

    def __init__(self, library: Library, models: Models, collection: Collection, tally: IngestTally, room: KvRoom):
        self._room = room
        self._cache = models.language.ingest(room.store)
        self._template = models.language.template
        self._system = self._template.system()
        self._tally = tally
        self._library = library
        self._crowded_out = self._cache.store.kept.crowded_out
        self._tokens, self._seconds = 0, 0.0  # that were captured, and what it took
        self._remember(library, collection)

    @shared_property
    def _warmer(self) -> Warmer:
        """Made where room may end: it captures the System segment."""
        from app.cachecare.warming import Warmer

        return Warmer(self._cache, self._system)

    def capture(
        self, draft: Draft, records: Sequence[ChunkRecord], standing: Standing, tell: Callable[[float], None]
    ) -> bool:
        """A document, which part of it being told -> whether there was room for all. The files are on the disk when
        this returns.
        """
        before = chunks_before(self._library, self._template, standing, len(records))
        segments = self._segments(draft, tell)
        if len(records) > SHORT:
            own = {record.token_hash for record in records}
            opening = [one for one in dict.fromkeys(before) if one.hash not in own]  # no prompt holds a copy twice
            return self._keep(partial(self._cache.ingest, self._system, segments, opening))
        return self._keep(partial(self._warmed, segments, before))

    def renew(self, collection: Collection, hashes: Iterable[str], check: Check) -> bool:
        """What these chunks have lost, of documents that were computed over others which are gone -> whether there was
        room for all.
        """
        order = self._library.catalog.order
        for document, texts in order.texts(order.holding(collection, hashes)).items():
            check()
            if not self._complete(document, texts, check):
                return False
        return True

    def go_on(self, document: int, stages: FileStages, check: Check) -> bool:
        """What this one lacks, which came before all of its KV -> whether there was room for all, and time."""
        texts = self._library.catalog.order.texts([document]).get(document, [])
        of = len(texts)
        for stage in ("read", "split", "embedded"):
            stages.reached(stage, *((1, 1) if stage == "read" else (of, of)))
        whole = self._complete(document, texts, check, lambda place: stages.reached("kv", place, of, last=True))
        if whole:
            stages.reached("kv", of, of, last=True)
        return whole

    def _complete(
        self, document: int, texts: Sequence[str], check: Check, tell: Callable[[int], None] = lambda place: None
    ) -> bool:
        """`tell`: which of its chunks has its KV now."""
        standing = self._library.catalog.order.standing(document)
        before = chunks_before(self._library, self._template, standing, len(texts))
        own = [self._template.chunk(text) for text in texts if text.strip()]
        places = {chunk.hash: place for place, chunk in enumerate(own, 1)}

        def warmed() -> Iterator[Variant]:
            for variant in self._warmed(own, before):
                tell(places.get(variant.key.chunk, 0))
                yield variant

        return self._keep(warmed, check)

    def record(self, collection: Collection) -> None:
        """For the history of the cache, what was captured since it was told last."""
        if self._tokens:
            with suppress(CatalogError):  # others write: it is not worth a wait
                self._library.catalog.cache_history.captured(collection, self._tokens, self._seconds)
        self._tokens, self._seconds = 0, 0.0

    def _keep(self, capture: Callable[[], Iterable[Variant]], check: Check = lambda: None) -> bool:
        """False where the room ended or the turn is over, and what is there stays."""
        started = perf_counter()
        try:
            for variant in capture():
                check()
                self._tally.kv_variants += 1
                self._tally.kv_bytes += variant.nbytes
                self._tokens += len(variant)
                self._seconds, started = self._seconds + perf_counter() - started, perf_counter()
                if self._room.gives_way(self._crowds):
                    self._tell_crowded(left=not self._room.put_off)
                    return False
        except PromptError as error:
            # The document itself is sound, and its chunks are found; answers compute what is not there.
            self._tally.note(f"some documents have no KV, or not for all of their chunks: {error}")
        except StoreFull as error:  # by others meanwhile, or by a quota
            if self._room.mode != "auto":
                raise
            log.warning("KV is left to use: %s", error)
            self._room.ended(error)
            return False
        self._tell_crowded()
        return True

    def _tell_crowded(self, *, left: bool = False) -> None:
        """`left`: the rest is, to use."""
        if left:
            self._tally.note(
                "the KV cache was full, others waited, and what is left of the KV comes on use: raise "
                "RAGCACHE_DISK_BYTES, or compute it by `ragcache cache warm`"
            )
        elif self._crowds():
            self._tally.note("the KV cache was full, and what is used least made room: raise RAGCACHE_DISK_BYTES")

    def _crowds(self) -> bool:
        return self._cache.store.kept.crowded_out > self._crowded_out

    def _warmed(self, segments: Iterable[Chunk], before: Sequence[Chunk]) -> Iterator[Variant]:
        return self._warmer.document(list(segments), before)

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
        if library.catalog.source(collection).position().live > self._tally.chunks:  # more than this ingest brought
            self._tally.note(lacking(collection))


class KvRemoval:
    """The KV of chunks that nobody has any more. Make it before the collection's engine changes."""

    def __init__(self, library: Library, models: Models, collection: Collection, tally: IngestTally):
        self._library, self._models, self._collection = library, models, collection
        self._tally = tally
        self._recorded = recorded_identities(library)
        self._identities: set[Identity] | None = None
        self._shared = EverybodysContexts(library)
        self._gone = set[str]()
        self._kept = set[str]()  # of which some KV could not be deleted
        self._done = set[str]()

    def drop(self, orphans: Iterable[str]) -> None:
        """After the commit: what this leaves behind, the next ingest finds. What a context cache shares goes with that:
        one that is there by now, since it may have ended, and have left that to the document, or been made meanwhile.
        """
        if not (chunks := set(orphans)):
            return
        self._gone.update(chunks)
        loss = KvLoss()
        with loss.noting(chunks):
            if self._identities is None:
                self._identities = identities_to_drop(self._library, self._models)
                if self._identities:
                    self._identities |= self._recorded
            loss = drop_chunks(self._models, self._identities, chunks, self._collection, self._shared)
        if loss.fault is not None:
            self._tell(loss.fault, loss.kept)

    def finish(self) -> set[str]:
        """What was computed over them goes too, and what a process has left that was killed before -> chunks that have
        lost KV by that. A text that has come back under another name is not gone.
        """
        orphans = self._library.catalog.orphans
        left, lost = orphans.of(self._collection)
        self.drop(orphans.unused(left - self._gone))
        gone, self._gone = orphans.unused(self._gone), set()
        try:
            lost |= lose_traces(self._library, self._models, self._collection, gone, self._shared)
        except StoreError as error:
            self._tell(error, traced(error, self._models, gone, self._shared))
        self._done, self._kept = left - self._kept, set()
        return lost

    def settle(self, again: Iterable[str]) -> None:
        """What went is gone, and these, which lost KV by it, have it again, or wait for it until they are used."""
        self._library.catalog.orphans.settle(self._collection, self._done.union(again))

    def _tell(self, fault: StoreError, kept: Iterable[str]) -> None:
        self._kept.update(kept)
        log.warning("KV of documents that are gone was not deleted: %s", fault)
        self._tally.note("not all KV of documents that are gone could be deleted: the next ingest tries it again")
