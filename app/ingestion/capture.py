"""The KV of the documents that an ingest writes, and the end of that of documents which it takes away."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from app.ingestion import IngestTally
from app.ingestion.draft import Draft
from app.library import Library
from app.library.arrangement import chunks_before
from app.library.catalog.records import ChunkRecord, Collection
from app.library.kv import Identity, drop_chunks, drop_traces, identities_to_drop, recorded_identities
from app.library.order import SHORT, Standing
from app.models import Models
from ragcache.errors import PromptError, StoreError
from ragcache.types import Chunk, Variant

log = logging.getLogger(__name__)


def lacking(collection: Collection) -> str:
    return (
        "documents that were in before have no KV of this model and system prompt: "
        f"`ragcache cache warm -c {shlex.quote(collection.name)}` computes it"
    )


class KvCapture:
    """Loads the model when it is made. Raises ConfigError and ModelError then, StoreError when KV cannot be kept."""

    def __init__(self, library: Library, models: Models, collection: Collection, tally: IngestTally):
        from app.cachecare.warming import Warmer  # it imports torch

        self._cache = models.cache
        self._template = models.language.template
        self._system = self._template.system()
        self._tally = tally
        self._library, self._warmer = library, Warmer(self._cache, self._system)
        self._evictions = self._count_evictions()
        self._remember(library, collection)

    def capture(
        self, draft: Draft, records: Sequence[ChunkRecord], standing: Standing, tell: Callable[[float], None]
    ) -> None:
        """All of a document, which part of it being told. The files are on the disk when this returns."""
        before = chunks_before(self._library, self._template, standing, len(records))
        segments = self._segments(draft, tell)
        if len(records) > SHORT:
            own = {record.token_hash for record in records}
            opening = [one for one in dict.fromkeys(before) if one.hash not in own]  # no prompt holds a copy twice
            self._keep(self._cache.ingest(self._system, segments, opening))
        else:
            self._keep(self._warmer.document(list(segments), before))

    def renew(self, collection: Collection, hashes: Iterable[str]) -> None:
        """What these chunks have lost, of documents that were computed over others which are gone."""
        order = self._library.catalog.order
        for document, texts in order.texts(order.holding(collection, hashes)).items():
            before = chunks_before(self._library, self._template, order.standing(document), len(texts))
            own = [self._template.chunk(text) for text in texts if text.strip()]
            self._keep(self._warmer.document(own, before))

    def _keep(self, captured: Iterable[Variant]) -> None:
        try:
            for variant in captured:
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
        self._gone = set[str]()

    def drop(self, orphans: Iterable[str]) -> None:
        """After the commit: what this leaves behind, `ragcache cache prune` finds."""
        chunks = list(orphans)
        if not chunks:
            return
        self._gone.update(chunks)
        with self._telling():
            if self._identities is None:
                self._identities = identities_to_drop(self._library, self._models)
                if self._identities:
                    self._identities |= self._recorded
            drop_chunks(self._models, self._identities, chunks)

    def finish(self) -> set[str]:
        """What was computed over them goes too -> chunks that have lost KV by that. A text that has come back under
        another name is not gone.
        """
        gone, self._gone = self._library.catalog.chunks.unused(self._gone), set()
        with self._telling():
            return {key.chunk for key in drop_traces(self._models, gone)} - gone
        return set()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            log.warning("KV of documents that are gone was not deleted: %s", error)
            self._tally.note("not all KV of documents that are gone could be deleted: `ragcache cache prune` does it")
