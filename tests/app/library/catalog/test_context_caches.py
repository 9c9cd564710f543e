"""Context caches: what clients have the server remember."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app.errors import NotFound
from app.library.catalog import Catalog
from app.library.catalog.serving_records import ContextCache
from app.library.catalog.serving_tables import CONTEXT_CACHES
from app.library.catalog.tables import now

CHUNKS = [[1, 2, 3], "a text\0\udcff"]


def make(catalog: Catalog, owner: str = "anna", **changes: Any) -> ContextCache:
    values: dict[str, Any] = {"border": f"key:{owner}", "model": "f" * 64, "chunks": CHUNKS, "nbytes": 1 << 40}
    return catalog.context_caches.create(owner, **values | changes)


def set_rows(catalog: Catalog, **values: Any) -> None:
    with catalog.database.writing() as connection:
        connection.execute(update(CONTEXT_CACHES).values(**values))


def test_it_is_there_for_its_owner(catalog: Catalog) -> None:
    caches, until = catalog.context_caches, now() + timedelta(hours=1)
    first, second = make(catalog), make(catalog, expires=until, pinned=True)
    nobodys = make(catalog, "")
    assert (second.expires, second.pinned, second.nbytes, second.border) == (until, True, 1 << 40, "key:anna")
    assert first.id != second.id and first.id.startswith("cc-") and len(first.id) == 35
    assert caches.get(first.id, "anna") == caches.get(first.id, None) == first
    assert caches.chunks(second.id, "anna") == CHUNKS
    assert caches.all("anna") == [second, first]
    assert caches.all("") == [nobodys]
    assert set(caches.all(None)) == {first, second, nobodys}
    caches.delete(first.id, "anna")
    assert caches.all("anna") == [second]


def test_of_many_those_that_are_asked_for_are_read(catalog: Catalog) -> None:
    caches = catalog.context_caches
    first, second, foreign = make(catalog), make(catalog, expires=now() - timedelta(seconds=1)), make(catalog, "bob")
    assert caches.ids_within("key:anna") == {first.id, second.id}
    assert caches.ids_within(None) == {first.id, second.id, foreign.id}
    assert caches.chunks_within("key:anna", [second.id, foreign.id]) == {second.id: CHUNKS}
    assert caches.chunks_within("key:anna", []) == {}


def test_foreign_expired_and_unknown_ones_are_alike(catalog: Catalog) -> None:
    caches = catalog.context_caches
    foreign, gone = make(catalog, "bob"), make(catalog, expires=now() - timedelta(seconds=1))
    said = set()
    for cache_id in (foreign.id, gone.id, "cc-" + "0" * 32, "\udcff" * 99):
        for act in (
            lambda name: caches.get(name, "anna"),
            lambda name: caches.chunks(name, "anna"),
            lambda name: caches.prolong(name, "anna", None),
        ):
            with pytest.raises(NotFound) as error:
                act(cache_id)
            said.add(str(error.value).replace(repr(cache_id), "it"))
    assert len(said) == 1
    with pytest.raises(NotFound):
        caches.delete(foreign.id, "anna")
    assert caches.all(None) == [foreign]


def test_what_has_expired_waits_for_its_deletion(catalog: Catalog) -> None:
    caches = catalog.context_caches
    make(catalog)
    gone, later = make(catalog, expires=now()), make(catalog, expires=now() + timedelta(hours=1), pinned=True)
    assert caches.expired() == [gone]
    assert caches.expired(now() + timedelta(hours=2)) == [gone, later]
    caches.delete(gone.id, None)
    assert caches.expired() == []


def test_it_expires_when_its_owner_says(catalog: Catalog) -> None:
    cache, until = make(catalog), now() + timedelta(hours=1)
    assert catalog.context_caches.prolong(cache.id, "anna", until).expires == until
    assert catalog.context_caches.prolong(cache.id, "anna", None).expires is None


def test_its_use_is_written_down_behind_it_once_a_minute(catalog: Catalog) -> None:
    caches, cache = catalog.context_caches, make(catalog)
    for earlier, used in ((timedelta(), False), (timedelta(minutes=2), True)):
        set_rows(catalog, used=cache.used - earlier)
        known = caches.get(cache.id, "anna").used
        caches.uses.note(cache.id, known)
        assert caches.get(cache.id, None).used == known
        catalog.write_uses()
        assert (caches.get(cache.id, None).used > known) == used
