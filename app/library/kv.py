"""The KV of chunks: where it is, what is there of a chunk, and its end with the chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.library import Library
from app.library.catalog.records import Collection
from app.library.identities import Identity, known_identities
from app.models import Models
from app.settings import Settings
from ragcache.store.folder import CacheFolder
from ragcache.types import VariantKey


@dataclass(frozen=True)
class StoredVariant:
    """KV that lies in the cache folder."""

    key: VariantKey
    nbytes: int
    tier: str = "disk"


def has_kv(settings: Settings) -> bool:
    """Whether anything may be cached: asked before the store, whose libraries take seconds to load."""
    folder = settings.kv_folder
    return folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir())


def variants_of(library: Library, collection: Collection, hashes: Iterable[str]) -> dict[str, list[StoredVariant]]:
    """By token hash, of the model that the collection was last ingested with; the shortest context first."""
    fingerprint, system = collection.engine_fingerprint, collection.system_hash
    if fingerprint is None or system is None or not has_kv(library.settings):
        return {}
    folder, found = CacheFolder(library.settings.kv_folder), {}
    for chunk in set(hashes):
        items = folder.family(VariantKey(fingerprint, system, (), chunk).family)
        stored = [StoredVariant(key, item.nbytes) for item in items if (key := folder.key(item)) is not None]
        if stored:
            found[chunk] = sorted(stored, key=lambda one: (len(one.key.context), one.key.digest))
    return found


def families_of(identity: Identity, hashes: Iterable[str]) -> Iterator[str]:
    return (VariantKey(identity.fingerprint, identity.system, (), chunk).family for chunk in hashes)


def identities_to_drop(library: Library, models: Models) -> set[Identity]:
    """Whose KV goes with a chunk; ask before the chunk goes, since its collection may go too."""
    return known_identities(library, models) if has_kv(library.settings) else set()


def drop_chunks(models: Models, identities: Iterable[Identity], hashes: Iterable[str]) -> int:
    """Delete all KV of chunks that nobody has any more; returns how many variants went. Raises StoreError."""
    wanted, chunks = list(identities), list(hashes)
    if not wanted or not chunks:
        return 0
    store = models.store
    return sum(store.drop_chunk(one.fingerprint, one.system, chunk) for one in wanted for chunk in chunks)
