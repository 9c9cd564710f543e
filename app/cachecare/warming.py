"""KV that is missing, computed as an ingest would have: each document's chunks in order, in the context before them.

What is there already stays, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

from app.errors import CatalogError, IngestStopped, MaintenanceError
from app.library import Library
from app.library.arrangement import CollectionArrangement, chunks_before, unpacked
from app.library.catalog.database import batches
from app.library.catalog.records import Collection, Document, StoredChunk
from app.library.order import SHORT
from app.models import Models
from app.prompt import PromptTemplate
from ragcache.address import lead_address
from ragcache.errors import CorruptEntry, ForeignEntry, PromptError
from ragcache.kvgen import AFRESH, LEAD_TOKENS, ChunkIngest
from ragcache.store.base import KVStore
from ragcache.store.findings import DISK
from ragcache.types import Chunk, System, Variant, VariantKey

ARRANGED = 128  # documents that get their places together
LOOKED_AHEAD = 32  # chunks that a bucket is asked for together
_TRIES = 3  # for a document whose KV others remove, or that turns out to be bad, while it is read


@dataclass(frozen=True)
class WarmingProgress:
    """After a document: what has been done so far."""

    documents: int = 0
    chunks: int = 0
    computed: int = 0  # variants
    tokens: int = 0  # of them
    nbytes: int = 0  # of them, in memory
    failed: tuple[tuple[str, str], ...] = ()  # source and reason
    last: int = 0  # the document's id


def warm(
    library: Library,
    models: Models,
    collection: Collection,
    border: str = "",
    after: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Generator[WarmingProgress, None, None]:
    """One report after each document. Holds the collection's ingest lock meanwhile. `border`: within which it is
    computed, for those whom no KV of everybody may serve. `after`: the `last` of another run; it goes on behind that.
    `check`, behind each chunk, ends it by what it raises; what was computed of that document stays, untold.

    Raises CatalogError while an ingest runs, MaintenanceError where no KV is to be kept and when the cache is too
    small to hold what was just computed; StoreError when it cannot be written.
    """
    if models.settings.kv == "off":
        raise MaintenanceError("RAGCACHE_KV is off, so answers would not use it: choose auto, eager or on-use")
    with library.catalog.alone(collection):
        if models.store.kept.tier != DISK:
            raise MaintenanceError("RAGCACHE_DISK_BYTES is 0, so no KV is kept: give the cache some room on the disk")
        cache, template = models.cache, models.template.within(border)
        system = template.system()
        _arrange(library, collection)
        warmer, done, before = Warmer(cache, system), WarmingProgress(), cache.store.kept.crowded_out
        documents = library.catalog.documents.all(collection, "ready")
        begin = next((place for place, one in enumerate(documents, 1) if one.id == after), 0)
        for document in documents[begin:]:
            try:
                done = _warm(library, template, collection, document, warmer, done, check)
            except IngestStopped:  # each turn of many would push out some more
                _check_room(cache.store, before)
                raise
            _check_room(cache.store, before)
            yield done
        library.catalog.collections.set_engine(collection, cache.engine.spec.fingerprint, system.hash)


def _check_room(store: KVStore, before: int) -> None:
    if store.kept.crowded_out > before:
        raise MaintenanceError(
            "the KV cache is full, and more would push out what is in it: raise RAGCACHE_DISK_BYTES, or free some "
            "space on its disk, and warm the rest then"
        )


def _arrange(library: Library, collection: Collection) -> None:
    """Give places to documents that came without KV, or before there was an order."""
    arrangement, order = CollectionArrangement(library, collection), library.catalog.order
    loose = order.loose(collection)
    short = batches((document for document, chunks in loose if chunks <= SHORT), ARRANGED)
    long = batches((document for document, chunks in loose if chunks > SHORT), ARRANGED)
    for batch in (*short, *long):
        for place in arrangement.begin(unpacked(order.vectors(document)) for document in batch):
            placed = arrangement.standing(place)
            order.set(collection, batch[place], placed.standing)
            arrangement.added(place, batch[place], placed)


def _warm(
    library: Library,
    template: PromptTemplate,
    collection: Collection,
    document: Document,
    warmer: Warmer,
    done: WarmingProgress,
    check: Callable[[], None],
) -> WarmingProgress:
    stored, segments = _segments(library, template, document)
    order = library.catalog.order
    count = order.lengths([document.id]).get(document.id, 0)
    before = chunks_before(library, template, order.standing(document.id), count)
    changed = [
        (chunk.id, template.count(chunk.text), segment.hash)
        for chunk, segment in zip(stored, segments, strict=True)
        if chunk.token_hash != segment.hash
    ]
    library.catalog.chunks.retokenize(collection, changed)
    failed = done.failed
    sizes: dict[VariantKey, int] = {}
    tokens, started = 0, perf_counter()
    try:
        for variant in warmer.document(segments, before):
            sizes[variant.key] = variant.nbytes
            tokens += len(variant)
            check()
    except PromptError as error:
        failed += ((document.source, str(error)),)
    if tokens:
        with suppress(CatalogError):  # others write: the history is not worth a wait
            library.catalog.cache_history.captured(collection, tokens, perf_counter() - started)
    return replace(
        done,
        documents=done.documents + 1,
        chunks=done.chunks + len(stored),
        computed=done.computed + len(sizes),
        tokens=done.tokens + tokens,
        nbytes=done.nbytes + sum(sizes.values()),
        failed=failed,
        last=document.id,
    )


def _segments(library: Library, template: PromptTemplate, document: Document) -> tuple[list[StoredChunk], list[Chunk]]:
    """Without blank chunks, which no prompt holds."""
    stored = [chunk for chunk in library.catalog.chunks.of_document(document.id) if chunk.text.strip()]
    return stored, [template.chunk(chunk.text) for chunk in stored]


class _Vanished(Exception):
    """Stored KV that another chunk needs as its context could not be read."""


@dataclass
class _Link:
    """A chunk of the document that has its KV; it is read when a later chunk needs it."""

    key: VariantKey
    variant: Variant | None = None


class Warmer:
    """Any variant with a chunk's context in the document serves, whatever that context's own KV had seen."""

    def __init__(self, cache: ChunkIngest, system: System):
        self._cache = cache
        self._system, self._most = cache.system_variant(system), cache.store.most_variants

    def document(self, chunks: Sequence[Chunk], before: Sequence[Chunk] = ()) -> Iterator[Variant]:
        """Compute and store what is missing, also of those `before` it in its run; yields what was stored."""
        for _ in range(_TRIES):
            try:
                yield from self._document(chunks, before)
                return
            except _Vanished:
                continue  # what was bad is quarantined by now, and so counts as missing
        raise MaintenanceError("cached KV vanishes as soon as it is written: is another process emptying the folder?")

    def _document(self, chunks: Sequence[Chunk], before: Sequence[Chunk]) -> Iterator[Variant]:
        window: deque[_Link] = deque(maxlen=self._cache.kvgen.context_chunks)
        leads = self._most > 1 and sum(map(len, chunks)) >= LEAD_TOKENS  # one alone would go for its lead
        own = {chunk.hash for chunk in chunks}
        others = [chunk for chunk in dict.fromkeys(before) if chunk.hash not in own]  # no prompt holds a copy twice
        every = (*others, *chunks)
        for place, chunk in enumerate(every):
            if not place % LOOKED_AHEAD:
                self._cache.store.look_ahead(list(map(self._family, every[place : place + LOOKED_AHEAD])))
            if place > len(others) and not (place - len(others)) % AFRESH:
                window.clear()
            link = self._served(chunk, window)
            if link is None:
                if place >= len(others):
                    yield self._capture(chunk, [])  # which says why it cannot be
                continue  # another document's chunk, too long for any prompt
            if link.variant is not None:
                yield link.variant
            if leads and place >= len(others) and window and not _behind(self._stored(chunk), []):
                yield self._capture(chunk, [])
            window.append(link)

    def _served(self, chunk: Chunk, window: deque[_Link]) -> _Link | None:
        """What is there, or new, behind as much of the window as leaves room in the model's context; None where not
        even the chunk alone fits.
        """
        while True:
            key = self._find(chunk, [link.key for link in window])
            if key is not None:
                return _Link(key)
            try:
                new = self._capture(chunk, [self._load(link) for link in window])
            except PromptError:
                if not window:
                    return None
                window.popleft()
            else:
                return _Link(new.key, new)

    def _find(self, chunk: Chunk, context: Sequence[VariantKey]) -> VariantKey | None:
        """Any variant serves a chunk that has as many as are kept: a new one would push out another document's, which
        the next run would compute again.
        """
        keys = self._stored(chunk)
        found = _behind(keys, context) or (keys if len(keys) >= self._most else [])
        return min(found, key=lambda key: (key.history, key.digest), default=None)

    def _stored(self, chunk: Chunk) -> list[VariantKey]:
        return [info.key for info in self._cache.store.variants(self._family(chunk))]

    def _family(self, chunk: Chunk) -> str:
        name, system = self._cache.engine.spec.fingerprint, self._system.key.chunk
        return lead_address(name, system, chunk.hash, chunk.border).family

    def _load(self, link: _Link) -> Variant:
        if link.variant is None:
            try:
                fetched = self._cache.store.get(link.key)
            except (CorruptEntry, ForeignEntry):
                fetched = None
            if fetched is None:
                raise _Vanished
            link.variant = fetched.variant
        return link.variant

    def _capture(self, chunk: Chunk, context: Sequence[Variant]) -> Variant:
        variant = self._cache.kvgen.capture(self._system, context, chunk)
        self._cache.store.put(variant, wanted=True)
        return variant


def _behind(keys: Sequence[VariantKey], context: Sequence[VariantKey]) -> list[VariantKey]:
    """Those that were computed behind these chunks."""
    hashes = tuple(key.chunk for key in context)
    return [key for key in keys if key.context == hashes]
