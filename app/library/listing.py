"""The collections with their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from app.library import Library
from app.library.catalog.records import Collection, CollectionTotals
from app.library.identities import Identity, recorded_identities, remembered_identity
from app.library.kv import families_of, has_kv
from app.models import Models
from ragcache.store.folder import CacheFolder, engine_name


@dataclass(frozen=True)
class Summary:
    """A collection with its numbers. KV is what lies in the cache folder now; collections may share chunks."""

    collection: Collection
    totals: CollectionTotals
    kv_variants: int  # of the model that the collection was last ingested with
    kv_bytes: int
    other_kv_bytes: int  # of the other models and System segments that this catalog knows of


def summaries(library: Library, models: Models) -> list[Summary]:
    """All collections, by name. None of the cache's files is opened."""
    collections = library.catalog.collections
    known, found = recorded_identities(library), collections.all()
    if any(one.engine_fingerprint is None for one in found) and has_kv(library.settings):
        # Its KV can only come from answers.
        settled = remembered_identity(models)
        known |= set() if settled is None else {settled}
    else:
        settled = None
    shelf = _Shelf(library, known)
    return [_summary(library, one, known, settled, shelf) for one in found]


def _summary(
    library: Library, collection: Collection, known: set[Identity], settled: Identity | None, shelf: _Shelf
) -> Summary:
    fingerprint, system = collection.engine_fingerprint, collection.system_hash
    own = Identity(fingerprint, system) if fingerprint is not None and system is not None else settled
    hashes = library.catalog.chunks.hashes(collection) if shelf.entries else set()
    kv = shelf.of([own] if own else [], hashes)
    other = shelf.of(known - {own}, hashes)
    totals = library.catalog.collections.totals(collection)
    return Summary(collection, totals, *kv, other[1])


class _Shelf:
    """Files of known engines in the cache folder, by family."""

    def __init__(self, library: Library, known: Iterable[Identity]) -> None:
        self.entries: Counter[str] = Counter()
        self._nbytes: Counter[str] = Counter()
        for item in CacheFolder(library.settings.kv_folder).items({engine_name(one.fingerprint) for one in known}):
            self.entries[item.family] += 1
            self._nbytes[item.family] += item.nbytes

    def of(self, identities: Iterable[Identity], hashes: set[str]) -> tuple[int, int]:
        """Files and bytes."""
        families = [family for one in identities for family in families_of(one, hashes)]
        return sum(self.entries[one] for one in families), sum(self._nbytes[one] for one in families)
