from __future__ import annotations

from time import time_ns

import pytest

from app.cachecare.eviction import evict
from app.errors import MaintenanceError
from app.library import Library
from app.library.identities import current_identity
from app.library.kv import FileTally, border_around, families_of
from app.library.pinning import pin_collection, unpin_collection
from app.library.removal import remove_collection
from app.models import Models
from ragcache.store import RamTier
from ragcache.store.folder import CacheFolder
from tests.app.library.shelves import fill

BOOKS = {"/a.txt": ["The first text of all.", "And a second one."]}
OTHERS = {"/b.txt": ["And a second one.", "Which another one follows."]}


def pinned(library: Library) -> int:
    return sum(item.pinned for item in CacheFolder(library.settings.kv_folder).items())


def test_too_much_is_not_pinned(library: Library, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(library, models, books=BOOKS, kv=True)
    collection = library.catalog.collections.get("default")
    monkeypatch.setattr("app.library.pinning.PINNED_SHARE", 1e-12)
    with pytest.raises(MaintenanceError, match="would be pinned"):
        pin_collection(library, models, collection)
    assert pinned(library) == 0


def test_a_pin_ends_with_its_collection(library: Library, models: Models) -> None:
    fill(library, models, books=BOOKS, kv=True)
    fill(library, models, "other", books=OTHERS, kv=True)
    first, second = (library.catalog.collections.get(name) for name in ("default", "other"))
    own = pin_collection(library, models, first)
    assert own.entries == pinned(library) > 0
    assert pin_collection(library, models, first) == own
    remove_collection(library, models, first)
    assert pinned(library) == 0
    assert unpin_collection(library, models, second) == FileTally()


def test_a_text_that_two_have_is_pinned_by_each(library: Library, models: Models) -> None:
    fill(library, models, books=BOOKS, kv=True)
    fill(library, models, "other", books=OTHERS, kv=True)
    first, second = (library.catalog.collections.get(name) for name in ("default", "other"))
    pin_collection(library, models, first)
    both = pin_collection(library, models, second)
    unpin_collection(library, models, first)
    assert pinned(library) == both.entries


def test_what_memory_alone_has_is_evicted_too(library: Library, models: Models) -> None:
    """The disk has had no room for it, or another process has removed it there."""
    fill(library, models, books=BOOKS, kv=True)
    collection = library.catalog.collections.get("default")
    chunks = library.catalog.chunks.hashes(collection)
    folder = CacheFolder(library.settings.kv_folder)
    folder.remove(list(folder.items()), time_ns())

    def held() -> set[str]:
        (ram,) = [tier for tier in models.store.tiers() if isinstance(tier, RamTier)]
        identity = current_identity(models)
        return {info.key.chunk for family in families_of(identity, chunks) for info in ram.variants(family)}

    assert held() == chunks
    evict(library, models, collection)
    assert held() == set()


def test_families_within_a_border_are_told_of_where_a_key_has_one(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is asked for each family, whatever is there."""
    fill(library, models, books=BOOKS, kv=True)
    fill(library, models, "other", books=OTHERS)
    first, second = (library.catalog.collections.get(name) for name in ("default", "other"))
    identity, chunks = current_identity(models), library.catalog.chunks.hashes(first)
    own = set(families_of(identity, chunks - library.catalog.chunks.hashes(second)))
    dropped = list[set[str]]()
    monkeypatch.setattr(models.store, "drop_families", lambda families: dropped.append(set(families)))
    library.catalog.keys.create("all", ["read"])
    library.catalog.keys.create("of another", ["read"], collections=[second])
    evict(library, models, first)
    key, _ = library.catalog.keys.create("of this", ["read"], collections=[first, second])
    library.catalog.keys.revoke(key.id)  # what it has warmed is there all the same
    evict(library, models, first)
    assert dropped == [own, own | set(families_of(identity, chunks, border_around(first)))]


def test_what_others_have_too_is_not_evicted(library: Library, models: Models) -> None:
    fill(library, models, books=BOOKS, kv=True)
    fill(library, models, "other", books=OTHERS, kv=True)
    first, second = (library.catalog.collections.get(name) for name in ("default", "other"))
    second_own = pin_collection(library, models, second)
    unpin_collection(library, models, second)
    assert evict(library, models, first).entries > 0
    assert pin_collection(library, models, second) == second_own
    assert evict(library, models, first) == FileTally()
