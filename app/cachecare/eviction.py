"""KV of a collection, given up before its time: answers compute what they lack, or `warming` does."""

from __future__ import annotations

from app.library import Library
from app.library.catalog.records import Collection
from app.library.kv import FileTally, context_hashes, has_kv, may_hold_kv
from app.library.pinning import collection_families, collection_items, told_tally
from app.models import Models
from ragcache.store.folder import CacheFolder, Item


def evict(library: Library, models: Models, collection: Collection, bordered: bool = False) -> FileTally:
    """What it alone has for the model of the settings, from all tiers and the bucket -> what went from the disk, or for
    who is `bordered` that within the border around it. KV stays that is pinned, and that of texts which other
    collections or context caches have too. Raises CatalogError while an ingest runs.
    """
    if not may_hold_kv(models):
        return FileTally()
    folder = CacheFolder(library.settings.kv_folder)
    with library.catalog.alone(collection):
        shared = _shared(library, collection)
        there = collection_items(library, models, collection, folder.items(), shared)
        # The bucket is asked for each of them, so they are twice as many only where there may be any.
        within = any(key.collections and collection.id in key.collections for key in library.catalog.keys.all())
        may_be = collection_families(library, models, collection, shared, within=within)
        families: dict[str, set[str]] = {one: set() for one in (*may_be, *(item.family for item in there))}
        for item in there:
            if item.pinned:
                families[item.family].add(item.address)
        models.store.drop_families(families)
        left = {one.address for one in folder.items()}
        return told_tally(library, models, collection, [one for one in there if one.address not in left], bordered)


def evictable(library: Library, models: Models, collection: Collection) -> list[Item]:
    """What `evict` would take from the disk."""
    if not has_kv(library.settings):
        return []
    items = CacheFolder(library.settings.kv_folder).items()
    own = collection_items(library, models, collection, items, _shared(library, collection))
    return [one for one in own if not one.pinned]


def _shared(library: Library, collection: Collection) -> frozenset[str]:
    """Token hashes of what others have."""
    others = [one for one in library.catalog.collections.all() if one.id != collection.id]
    return frozenset(context_hashes(library).union(*map(library.catalog.chunks.hashes, others)))
