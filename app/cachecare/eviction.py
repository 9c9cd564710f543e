"""KV of a collection, given up before its time: answers compute what they lack, or `warming` does."""

from __future__ import annotations

from app.library import Library
from app.library.catalog.records import Collection
from app.library.kv import FileTally, context_hashes, has_kv
from app.library.pinning import collection_items, told_tally
from app.models import Models
from ragcache.store.folder import CacheFolder, Item


def evict(library: Library, models: Models, collection: Collection, bordered: bool = False) -> FileTally:
    """What it alone has for the model of the settings, from all tiers and the bucket -> what went, or for who is
    `bordered` that within the border around it. KV stays that is pinned, and that of texts which other collections or
    context caches have too. Raises CatalogError while an ingest runs.
    """
    folder, gone = CacheFolder(library.settings.kv_folder), []
    with library.catalog.alone(collection):
        for item in evictable(library, models, collection):
            if (key := folder.key(item)) is not None and models.store.delete(key):
                gone.append(item)
        return told_tally(library, models, collection, gone, bordered)


def evictable(library: Library, models: Models, collection: Collection) -> list[Item]:
    """What `evict` would take."""
    if not has_kv(library.settings):
        return []
    others = [one for one in library.catalog.collections.all() if one.id != collection.id]
    shared = context_hashes(library).union(*map(library.catalog.chunks.hashes, others))
    items = CacheFolder(library.settings.kv_folder).items()
    return [one for one in collection_items(library, models, collection, items, frozenset(shared)) if not one.pinned]
