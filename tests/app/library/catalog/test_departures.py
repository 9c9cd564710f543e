"""The log of texts that have gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.library.catalog import Catalog, departures, open_catalog
from app.library.catalog.departures import CachePlace, Departure, depart
from app.library.catalog.records import Collection
from app.settings import Settings
from tests.app.library.catalog.samples import digest, document, make_collection
from tests.app.library.catalog.test_orphans import wait_for_blocked


def gone(catalog: Catalog, collection: Collection, *texts: str) -> None:
    """They were there, have gone, and all is done about that."""
    kept = catalog.documents.replace(collection, *document(texts))
    removed = catalog.documents.delete(collection, [kept.document_id])
    with catalog.alone(collection):
        catalog.orphans.settle(collection, removed.orphans)


def told(catalog: Catalog, number: int = 0) -> list[tuple[str, str]]:
    return [(one.token_hash, one.border) for one in catalog.departures.after(number)]


def test_what_is_settled_is_told_once(catalog: Catalog, collection: Collection) -> None:
    assert catalog.departures.newest() is None and catalog.departures.behind(None) == 0
    gone(catalog, collection, "a", "b")
    assert sorted(told(catalog)) == sorted((digest(one), "") for one in "ab")
    last = catalog.departures.newest()
    assert last is not None and catalog.departures.behind(last) == last.number
    with catalog.alone(collection):
        catalog.orphans.settle(collection, [digest("a")])
        catalog.orphans.settle(collection, [digest("never")])
    assert catalog.departures.newest() == last
    gone(catalog, collection, "c")
    assert told(catalog, last.number) == [(digest("c"), "")]


def test_what_chunks_lose_is_no_departure(catalog: Catalog, collection: Collection) -> None:
    catalog.documents.replace(collection, *document(["a"]))
    with catalog.alone(collection):
        catalog.orphans.lose(collection, [digest("a")])
        catalog.orphans.settle(collection, [digest("a")])
    assert told(catalog) == []


def test_a_context_cache_is_told_with_its_border(catalog: Catalog) -> None:
    for border in ("", "key-ann"):
        cache = catalog.context_caches.create("ann", border=border, model="f", chunks=[["a", [1]]], nbytes=1)
        catalog.context_caches.delete(cache.id, "ann", ["a"])
        if not border:
            catalog.orphans.settle_cache(cache.id)
    assert told(catalog) == [("a", ""), ("a", "key-ann")]


def test_the_oldest_go_and_who_missed_them_finds_out(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "MOST", 3)
    gone(catalog, collection, "a")
    old = catalog.departures.newest()
    gone(catalog, collection, "b", "c")
    assert old is not None and catalog.departures.behind(old) == old.number
    gone(catalog, collection, "d", "e")
    assert len(told(catalog)) == 3 and catalog.departures.behind(old) is None
    of_another = Departure(old.number + 10**6, "f", ""), Departure(old.number + 4, digest("x"), "")
    assert [catalog.departures.behind(one) for one in (None, *of_another)] == [None] * 3, "as before a restoration"


def test_it_says_where_that_was_done(tmp_path: Path) -> None:
    """By the name that a cache folder has for all processes over it, and keeps."""
    names = []
    for folder in ("one", "other", "one"):
        settings = Settings(
            data_dir=tmp_path,
            cache_dir=tmp_path / folder,
            database_url=SecretStr(f"sqlite:///{tmp_path}/shared.sqlite"),
        )
        with open_catalog(settings) as catalog:
            cache = catalog.context_caches.create("ann", border="key-ann", model="f", chunks=[["a", [1]]], nbytes=1)
            catalog.context_caches.delete(cache.id, "ann", ["a"])
            names.append(catalog.departures.place.name())
            assert [one.place for one in catalog.departures.after(0)] == names
    assert names[0] == names[2] != names[1] and all(len(one) == 32 for one in names)
    (tmp_path / "other" / "kv" / "place").write_bytes(bytes(32))
    assert len(CachePlace(tmp_path / "other" / "kv").name()) == 32, "as a disk leaves it when the power goes"
    (tmp_path / "file").touch()
    assert CachePlace(tmp_path / "file").name() == CachePlace().name() == ""


@pytest.mark.postgres
def test_numbers_are_seen_in_their_order(postgres_url: str, tmp_path: Path) -> None:
    """Whoever was told of one misses none below it."""
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings) as other, ThreadPoolExecutor() as pool:
        collection = make_collection(other)
        with catalog.database.writing() as connection:
            depart(connection, CachePlace(), ["first"])
            second = pool.submit(gone, other, collection, "second")
            wait_for_blocked(postgres_url, 1)
            assert told(other) == []
        second.result(60)
        assert [one for one, _ in told(catalog)] == ["first", digest("second")]
        catalog.collections.delete(collection)
        with catalog.database.writing() as connection:
            connection.exec_driver_sql("TRUNCATE orphans, departures")
