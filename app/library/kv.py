"""The KV of chunks that lies in the cache folder: what is there of which chunk, and how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from app.library import Library
from app.library.catalog.records import Collection
from app.library.identities import Identity, current_identity, remembered_identity
from app.models import Models
from app.settings import Settings
from ragcache.address import lead_address
from ragcache.store.folder import CacheFolder, Item, engine_name
from ragcache.types import VariantKey

AROUND = "collection-"  # with a uid: the border around a collection
BROUGHT = "key-"  # with an id: the border of what a key brings itself, behind which no document stands


@dataclass(frozen=True)
class StoredVariant:
    """KV that lies in the cache folder."""

    key: VariantKey
    nbytes: int


def has_kv(settings: Settings) -> bool:
    """Whether anything may be cached: asked before the store, whose libraries take seconds to load."""
    folder = settings.kv_folder
    return folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir())


def may_have_kv(settings: Settings) -> bool:
    """The same of a bucket too, which is not looked into."""
    return bool(settings.remote) or has_kv(settings)


def may_hold_kv(models: Models) -> bool:
    """The same of this process's memory too, which is all there is where nothing is kept on the disk."""
    return may_have_kv(models.settings) or Models.store.peek(models) is not None


def variants_of(
    library: Library, collection: Collection, hashes: Iterable[str], models: Models | None = None
) -> dict[str, list[StoredVariant]]:
    """By token hash, of the model that the collection was last ingested with, or of that of the settings where only
    answers have computed any; the shortest context first.
    """
    if not has_kv(library.settings):
        return {}
    identity = None if models is None else remembered_identity(models)
    if collection.engine_fingerprint is not None and collection.system_hash is not None:
        identity = Identity(collection.engine_fingerprint, collection.system_hash)
    if identity is None:
        return {}
    folder, found = CacheFolder(library.settings.kv_folder), {}
    for chunk in set(hashes):
        items = folder.family(lead_address(identity.fingerprint, identity.system, chunk).family)
        stored = [StoredVariant(key, item.nbytes) for item in items if (key := folder.key(item)) is not None]
        if stored:
            found[chunk] = sorted(stored, key=lambda one: (len(one.key.context), one.key.digest))
    return found


def families_of(identity: Identity, hashes: Iterable[str], border: str = "") -> Iterator[str]:
    return (lead_address(identity.fingerprint, identity.system, chunk, border).family for chunk in hashes)


def border_around(collection: Collection) -> str:
    """Of the KV that serves those who may not see all collections, and see this one."""
    return f"{AROUND}{collection.uid}"


def context_hashes(library: Library, border: str | None = None) -> set[str]:
    """Token hashes of all that clients have put into context caches, or into those within a border."""
    rows = library.catalog.context_caches.chunks_within(border)
    return {name for chunks in rows.values() for name, _ in chunks}


class EverybodysContexts:
    """Texts of context caches within no border, as they are whenever that is asked: each cache is read once."""

    def __init__(self, library: Library):
        self._rows = library.catalog.context_caches
        self._known = dict[str, frozenset[str]]()  # by the ids of the caches

    def having(self, hashes: Iterable[str]) -> set[str]:
        """Those of these token hashes that any of them has."""
        if not (wanted := set(hashes)):
            return wanted
        there = self._rows.ids_within("")
        new = self._rows.chunks_within("", there.difference(self._known))
        self._known = {one: known for one, known in self._known.items() if one in there}
        self._known |= {one: frozenset(name for name, _ in chunks) for one, chunks in new.items()}
        return wanted.intersection(chain.from_iterable(self._known.values()))


@dataclass(frozen=True)
class FileTally:
    """Files and their bytes."""

    entries: int = 0
    nbytes: int = 0

    @classmethod
    def of(cls, items: Iterable[Item]) -> FileTally:
        sizes = [item.nbytes for item in items]
        return cls(len(sizes), sum(sizes))


def with_kv(models: Models, hashes: Iterable[str], border: str = "") -> set[str]:
    """Those of these token hashes that have KV of the model of the settings, which serves within that border."""
    if not has_kv(models.settings):
        return set()
    identity, wanted = current_identity(models), sorted(set(hashes))
    families = dict(zip(families_of(identity, wanted, border), wanted, strict=True))
    there = CacheFolder(models.settings.kv_folder).with_entries(engine_name(identity.fingerprint), families)
    return {families[one] for one in there}


class Shelf:
    """Files of the cache folder, by the families of chunks."""

    def __init__(self, items: Iterable[Item]):
        self.entries: Counter[str] = Counter()
        self._nbytes: Counter[str] = Counter()
        for item in items:
            self.entries[item.family] += 1
            self._nbytes[item.family] += item.nbytes

    def of(self, families: Iterable[str]) -> FileTally:
        there = [one for one in families if one in self.entries]
        return FileTally(sum(self.entries[one] for one in there), sum(self._nbytes[one] for one in there))
