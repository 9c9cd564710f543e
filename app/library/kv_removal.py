"""The end of KV with its chunk, and of what had seen that. SQL first: ask whose it is before the chunk goes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from app.library import Library
from app.library.catalog.database import batches
from app.library.catalog.records import Collection
from app.library.identities import Identity, known_identities
from app.library.kv import AROUND, BROUGHT, EverybodysContexts, border_around, may_have_kv
from app.models import Models
from ragcache.address import group_of, is_within
from ragcache.errors import StoreError
from ragcache.types import VariantKey

ASKED = 32  # chunks of which is asked together who shares them


def identities_to_drop(library: Library, models: Models) -> set[Identity]:
    """Whose KV goes with a chunk; ask before the chunk goes, since its collection may go too."""
    return known_identities(library, models) if may_have_kv(library.settings) else set()


def drop_chunks(
    models: Models,
    identities: Iterable[Identity],
    hashes: Iterable[str],
    last: Collection | None = None,
    shared: EverybodysContexts | None = None,
) -> int:
    """Delete all KV of chunks that nobody has any more, this collection the `last`: everybody's, and that within the
    borders around it and all others, since they may have had the same chunk, or it another uid. Of every engine and
    System segment by the hash, also of those that nobody names any more, and of these `identities` also what a header
    does not tell; returns how many variants went. Everybody's of those that a context cache has that is everybody's
    (`shared`, asked as it goes on, since one may be made meanwhile) goes with that. Raises StoreError when it has tried
    all.
    """
    chunks = list(hashes)
    if not chunks or not may_have_kv(models.settings):
        return 0
    first, *rest = [*identities] or [Identity("", "")]
    drop, gone = models.store.drop_chunk, 0
    failed: StoreError | None = None
    for batch in batches(chunks, ASKED):
        kept = shared.having(batch) if shared else ()
        for chunk, border in product(batch, ("", border_around(last) if last else AROUND)):
            if not border and chunk in kept:
                continue
            try:
                group = group_of(border) if border else ""
                gone += drop(first.fingerprint, first.system, chunk, border, elsewhere=True, group=group)
                gone += sum(drop(one.fingerprint, one.system, chunk, border) for one in rest)
            except StoreError as error:  # one that cannot be deleted keeps no other
                failed = error
    if failed is not None:
        raise failed
    return gone


def drop_traces(models: Models, hashes: Iterable[str], shared: EverybodysContexts | None = None) -> list[VariantKey]:
    """Delete what was computed over chunks that nobody has any more -> what went; of those that a context cache has by
    now that is everybody's (`shared`), what is not. It looks at all entries, so call it for many chunks together.
    Raises StoreError.
    """
    return [key for chunks, stay in _going(models, hashes, shared) for key in models.store.drop_seeing(chunks, stay)]


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
    if not may_have_kv(models.settings):
        return []
    own, chunks = group_of(BROUGHT), set(hashes)
    kept = shared.having(chunks) if shared else set[str]()
    both = (chunks - kept, (own,)), (kept, ("", own))
    return [(some, stay) for some, stay in both if some]


def drop_prefixes(models: Models) -> None:
    """Delete what is kept of conversations with whatever engine, of which nothing tells whose they were. Raises
    StoreError.
    """
    if may_have_kv(models.settings):
        models.store.drop_prefixes()
