"""KV of collections that stays: what is pinned makes no room for other KV.

A pin is of an entry that is there: what is computed later is pinned by the next call. The pins of a collection are its
own, so of a text that two have, each may pin the KV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.errors import MaintenanceError
from app.library import Library
from app.library.catalog.records import Collection
from app.library.identities import current_identity
from app.library.kv import FileTally, border_around, families_of, has_kv
from app.models import Models
from ragcache.store.folder import CacheFolder, Item, engine_name
from ragcache.types import VariantKey

PINNED_SHARE = 0.4  # of the disk's budget, whoever has pinned it; context caches may go on to take half besides


def pin_collection(library: Library, models: Models, collection: Collection, bordered: bool = False) -> FileTally:
    """What is on the disk of it for the model of the settings -> what that is, or for who is `bordered` that within the
    border around it. Raises MaintenanceError where too much would be pinned, and pins nothing then.
    """
    found = pinnable(library, models, collection)
    if not found.fits:
        what = "more KV" if bordered else f"{found.pinned:,} bytes of KV"
        raise MaintenanceError(
            f"{what} would be pinned, and {PINNED_SHARE:.0%} of the disk's budget of {found.budget:,} may be "
            "(RAGCACHE_DISK_BYTES): unpin another collection, or raise it"
        )
    done = _each(library, found.items, lambda key: models.store.pin(key, owner=_owner(collection)))
    return told_tally(library, models, collection, done, bordered)


@dataclass(frozen=True)
class Pinnable:
    """What `pin_collection` would keep."""

    items: list[Item]
    pinned: int  # bytes, of all that would be pinned then
    budget: int  # of the disk

    @property
    def fits(self) -> bool:
        return self.pinned <= PINNED_SHARE * self.budget


def pinnable(library: Library, models: Models, collection: Collection) -> Pinnable:
    items = list(CacheFolder(library.settings.kv_folder).items()) if has_kv(library.settings) else []
    own = collection_items(library, models, collection, items)
    pinned = {one.address: one.nbytes for one in (*items, *own) if one.pinned}
    wanted = sum((pinned | {one.address: one.nbytes for one in own}).values())
    return Pinnable(own, wanted, models.disk_bytes)


def unpin_collection(library: Library, models: Models, collection: Collection, bordered: bool = False) -> FileTally:
    """Of all models -> what nobody pins any more, or what of it who is `bordered` is told."""
    if not has_kv(library.settings):
        return FileTally()
    folder = CacheFolder(library.settings.kv_folder)
    pinned = [one for one in folder.items() if one.pinned]
    _each(library, pinned, lambda key: models.store.pin(key, False, owner=_owner(collection)))
    still = {one.address for one in folder.items() if one.pinned} if pinned else set()
    let_go = [one for one in pinned if one.address not in still]
    return told_tally(library, models, collection, let_go, bordered)


def told_tally(
    library: Library, models: Models, collection: Collection, items: Sequence[Item], bordered: bool
) -> FileTally:
    return FileTally.of(told_items(library, models, collection, items) if bordered else items)


def told_items(library: Library, models: Models, collection: Collection, items: Iterable[Item]) -> list[Item]:
    """Of items of a collection those within the border around it. Who may not see all collections is told of these
    alone: by the others he could find out whether somebody else has a text.
    """
    identity, hashes = current_identity(models), library.catalog.chunks.hashes(collection)
    inside = set(families_of(identity, hashes, border_around(collection)))
    return [one for one in items if one.family in inside]


def collection_items(
    library: Library, models: Models, collection: Collection, items: Iterable[Item], but: frozenset[str] = frozenset()
) -> list[Item]:
    """Those of them that are of the collection's chunks for the model of the settings. `but`: these chunks count within
    the border around the collection alone.
    """
    families = collection_families(library, models, collection, but)
    engine = engine_name(current_identity(models).fingerprint)
    return [one for one in items if one.engine == engine and one.family in families]


def collection_families(
    library: Library,
    models: Models,
    collection: Collection,
    but: frozenset[str] = frozenset(),
    *,
    within: bool = True,
) -> set[str]:
    """`within`: those within the border around the collection too."""
    identity, hashes = current_identity(models), library.catalog.chunks.hashes(collection)
    inside = families_of(identity, hashes, border_around(collection)) if within else ()
    return {*families_of(identity, hashes - but), *inside}


def _each(library: Library, items: Iterable[Item], work: Callable[[VariantKey], None]) -> list[Item]:
    folder, done = CacheFolder(library.settings.kv_folder), []
    for item in items:
        if (key := folder.key(item)) is not None:
            work(key)
            done.append(item)
    return done


def _owner(collection: Collection) -> str:
    return f"collection {collection.id}"
