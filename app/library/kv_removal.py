"""The end of KV with its chunk, and of what had seen that. SQL first: ask whose it is before the chunk goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product

from app.library import Library
from app.library.catalog.database import batches
from app.library.catalog.records import Collection
from app.library.identities import Identity, known_identities
from app.library.kv import AROUND, BROUGHT, EverybodysContexts, border_around, may_hold_kv
from app.models import Models
from ragcache.address import group_of, is_within, lead_address
from ragcache.errors import BucketUntold, RagcacheError, StoreError
from ragcache.store.base import KVStore
from ragcache.types import VariantKey

ASKED = 8  # chunks of which is asked together who shares them
MOST_LOOKED_AT = 256  # entries that could not be deleted


@dataclass
class KvLoss:
    """What went of texts, and the texts of which some could not be deleted, by a fault."""

    variants: int = 0
    kept: set[str] = field(default_factory=set)
    fault: StoreError | None = None

    @contextmanager
    def noting(self, chunks: Iterable[str]) -> Iterator[None]:
        """What fails in the block keeps these."""
        try:
            yield
        except StoreError as error:
            self.note(error, chunks)

    def note(self, fault: StoreError, chunks: Iterable[str]) -> None:
        self.fault = fault
        self.kept.update(chunks)


def identities_to_drop(library: Library, models: Models) -> set[Identity]:
    """Whose KV goes with a chunk; ask before the chunk goes, since its collection may go too."""
    return known_identities(library, models) if may_hold_kv(models) else set()


def drop_kv(
    models: Models,
    identities: Iterable[Identity],
    hashes: Iterable[str],
    last: Collection | None = None,
    shared: EverybodysContexts | None = None,
) -> KvLoss:
    """`drop_chunks`, and `drop_traces` whatever came of that."""
    chunks = set(hashes)
    loss = drop_chunks(models, identities, chunks, last, shared)
    try:
        loss.variants += len(drop_traces(models, chunks, shared))
    except StoreError as error:
        loss.note(error, traced(error, models, chunks, shared))
    return loss


def drop_chunks(
    models: Models,
    identities: Iterable[Identity],
    hashes: Iterable[str],
    last: Collection | None = None,
    shared: EverybodysContexts | None = None,
) -> KvLoss:
    """Delete all KV of chunks that nobody has any more, this collection the `last`: everybody's, and that within the
    borders around it and all others, since they may have had the same chunk, or it another uid. Of every engine and
    System segment by the hash, also of those that nobody names any more, and of these `identities` also what a header
    does not tell. Everybody's of those that a context cache has that is everybody's
    (`shared`, asked as it goes on, since one may be made meanwhile) goes with that. What cannot be deleted keeps no
    other.
    """
    chunks, loss = list(hashes), KvLoss()
    if not chunks or not may_hold_kv(models):
        return loss
    first, *rest = [*identities] or [Identity("", "")]
    with loss.noting(chunks):
        drop = models.store.drop_chunk
    if loss.fault is not None:
        return loss
    for batch in batches(chunks, ASKED):
        kept = shared.having(batch) if shared else ()
        for chunk, border in product(batch, ("", border_around(last) if last else AROUND)):
            if not border and chunk in kept:
                continue
            group = group_of(border) if border else ""
            with loss.noting([chunk]):
                loss.variants += drop(first.fingerprint, first.system, chunk, border, elsewhere=True, group=group)
            for one in rest:
                with loss.noting([chunk]):
                    loss.variants += drop(one.fingerprint, one.system, chunk, border)
    return loss


def drop_traces(models: Models, hashes: Iterable[str], shared: EverybodysContexts | None = None) -> list[VariantKey]:
    """Delete what was computed over chunks that nobody has any more -> what went; of those that a context cache has by
    now that is everybody's (`shared`), what is not. It looks at all entries, so call it for many chunks together.
    Raises StoreError.
    """
    return [key for chunks, stay in _going(models, hashes, shared) for key in models.store.drop_seeing(chunks, stay)]


def traced(
    fault: StoreError, models: Models, hashes: Iterable[str], shared: EverybodysContexts | None = None
) -> set[str]:
    """Those of these chunks whose traces are there still, or may be, since they could not be deleted."""
    chunks, found = set(hashes), set[str]()
    if isinstance(fault, BucketUntold):  # what is left there is not to be seen here
        return chunks
    try:
        store = models.store
        for some, stay in _going(models, chunks, shared):
            left = [key for key in store.seeing(some) if not is_within(key.border, stay)]
            if len(left) > MOST_LOOKED_AT:
                return chunks
            for key in left:
                found |= some & _parts(store, key) or some
    except StoreError:
        return chunks
    return found


def _parts(store: KVStore, key: VariantKey) -> set[str]:
    """What had a part in an entry; nothing where that is not told whole."""
    try:
        if (entry := store.open(key)) is None:
            return set()
        with entry:
            lineage = entry.origin().lineage
    except RagcacheError:
        return set()
    return {*key.context, *lineage.seen} if lineage.complete else set()


def drop_departed(
    models: Models, unused: Callable[[], set[str]], shared: EverybodysContexts, *, memory: bool = False
) -> int:
    """Delete what is here of chunks that nobody has any more, and what was computed over them -> how many variants;
    with `memory` what that has and no other tier. Whether nobody has (`unused`) is asked again when it is found: the
    look takes a while, and a text may come again. Who deleted the chunks has told the bucket. Raises StoreError when
    all was tried.
    """
    going = _going(models, unused(), shared)
    while going and (store := _of(models, memory=memory)) is not None:
        there = set[VariantKey]()
        store.end_era()
        for chunks, stay in going:
            own = (lead_address("", "", chunk, border) for chunk in chunks for border in ("", group_of(AROUND)))
            keys = {key for one in own for key in store.everywhere(one)}.union(store.seeing(chunks))
            there.update(key for key in keys if not is_within(key.border, stay))
        if (now := _going(models, unused(), shared)) == going:
            return len(store.delete_each(there, here=True))
        going = now
    return 0


def drop_within(models: Models, unused: Callable[[], set[str]], border: str, *, memory: bool = False) -> int:
    """The same of what was within a border that is no collection's. What was computed over them goes from the bucket
    too, which was told of their own KV alone.
    """
    chunks = unused() if may_hold_kv(models) else set[str]()
    while chunks and (store := _of(models, memory=memory)) is not None:
        store.end_era()
        own = {key for chunk in chunks for key in store.everywhere(lead_address("", "", chunk, border))}
        seen = {key for key in store.seeing(chunks) if key.border == border} - own
        if (now := unused()) == chunks:
            return len(store.delete_each(own, here=True)) + len(store.delete_each(seen, here=memory))
        chunks = now
    return 0


def lose_traces(
    library: Library,
    models: Models,
    collection: Collection,
    hashes: Iterable[str],
    shared: EverybodysContexts | None = None,
) -> set[str]:
    """The same -> the chunks that lose KV by it, which the catalog remembers of the collection before they do."""
    gone = set(hashes)
    going = _going(models, gone, shared)
    if not going:  # the store need not be opened
        return set()
    store = models.store
    lost = {key.chunk for chunks, stay in going for key in store.seeing(chunks) if not is_within(key.border, stay)}
    lost -= gone
    library.catalog.orphans.lose(collection, lost)
    if more := {key.chunk for key in drop_traces(models, gone, shared)} - gone - lost:  # that were written meanwhile
        library.catalog.orphans.lose(collection, more)
    return lost | more


def _going(
    models: Models, hashes: Iterable[str], shared: EverybodysContexts | None
) -> list[tuple[set[str], tuple[str, ...]]]:
    """With the borders and groups within which traces of them stay. What a key has brought is its own: no document is
    behind that, and it would lose what it has paid for by a text that somebody else has deleted.
    """
    if not may_hold_kv(models):
        return []
    own, chunks = group_of(BROUGHT), set(hashes)
    kept = shared.having(chunks) if shared else set[str]()
    both = (chunks - kept, (own,)), (kept, ("", own))
    return [(some, stay) for some, stay in both if some]


def _of(models: Models, *, memory: bool) -> KVStore | None:
    return models.store.memory if memory else models.store


def drop_prefixes(models: Models, *, memory: bool = False) -> None:
    """Delete what is kept of conversations with whatever engine, of which nothing tells whose they were. Raises
    StoreError.
    """
    if may_hold_kv(models) and (store := _of(models, memory=memory)) is not None:
        store.drop_prefixes()
