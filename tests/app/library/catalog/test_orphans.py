"""Texts that nobody has any more, of collections that lose them at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from app.errors import CatalogError
from app.library.catalog import Catalog, locks, open_catalog
from app.library.catalog.chunks import remove_documents
from app.library.catalog.locks import last_look
from app.library.catalog.records import Collection, Removed
from app.settings import Settings
from tests.app.library.catalog.samples import digest, document, make_collection

BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
    "AND backend_type = 'client backend'"
)


def wait_for_blocked(url: str, wanted: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(1200):
            ((found,),) = connection.execute(BLOCKED).fetchall()
            if found == wanted:
                return
            threading.Event().wait(0.05)
    pytest.fail(f"{found} sessions wait, not {wanted}")


@pytest.mark.postgres
@pytest.mark.parametrize("whole", [False, True])
def test_a_text_that_two_collections_lose_at_once_is_left_behind_by_one(
    postgres_url: str, tmp_path: Path, whole: bool
) -> None:
    """Both have deleted it before either has committed."""
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings) as other:
        both = [make_collection(catalog, name) for name in ("first", "second")]
        for one in both:
            catalog.documents.replace(one, *document(["shared", one.name]))

        def remove(collection: Collection) -> Removed:
            of = catalog if collection == both[0] else other
            if whole:
                return of.collections.delete(collection)
            return of.documents.delete(collection, [one.id for one in of.documents.all(collection)])

        with ThreadPoolExecutor() as pool:
            with psycopg.connect(postgres_url) as holder:  # so that nobody gets beyond the look whether others have it
                holder.execute("LOCK TABLE orphans IN EXCLUSIVE MODE")
                removals = [pool.submit(remove, one) for one in both]
                wait_for_blocked(postgres_url, 2)
            gone = [set(one.result(60).orphans) for one in removals]
        assert [digest(one.name) in left for one, left in zip(both, gone, strict=True)] == [True, True]
        assert sum(digest("shared") in left for left in gone) == 1
        assert sum(digest("shared") in catalog.orphans.of(one)[0] for one in both) == 1
        for one in () if whole else both:
            catalog.collections.delete(one)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE orphans")


def lose(catalog: Catalog, collection: Collection) -> Removed:
    return catalog.documents.delete(collection, [one.id for one in catalog.documents.all(collection)])


@pytest.mark.postgres
def test_a_long_removal_keeps_no_change_to_another_collection_waiting(postgres_url: str, tmp_path: Path) -> None:
    """It is killed after its commit, before it looks who has its texts still: they are left behind by it."""
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings, busy_seconds=0.2) as other:
        long, short = (make_collection(catalog, name) for name in ("long", "short"))
        for one in (long, short):
            catalog.documents.replace(one, *document(["shared", one.name]))
        documents = [one.id for one in catalog.documents.all(long)]
        with catalog.database.writing() as connection:
            remove_documents(connection, long.id, documents)
            assert lose(other, short).orphans == (digest("short"),), "the long one may be taken back"
        left = {digest("shared"), digest("long")}
        assert (catalog.orphans.of(long)[0], catalog.orphans.unused(left)) == (left, left)
        assert catalog.orphans.of(short)[0] == {digest("short")}
        for one in (long, short):
            catalog.collections.delete(one)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE orphans")


@pytest.mark.postgres
def test_a_look_whether_others_have_a_text_is_waited_for(postgres_url: str, tmp_path: Path) -> None:
    """For longer than changes wait for each other: what was deleted before is committed."""
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings, busy_seconds=0.2) as other:
        collection = make_collection(catalog)
        catalog.documents.replace(collection, *document(["text"]))
        with ThreadPoolExecutor() as pool:
            with catalog.database.writing() as connection:
                last_look(connection)
                losing = pool.submit(lose, other, collection)
                wait_for_blocked(postgres_url, 1)
                connection.exec_driver_sql("SELECT pg_sleep(0.5)")
            assert losing.result(60).orphans == (digest("text"),)
        catalog.collections.delete(collection)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE orphans")


@pytest.mark.postgres
def test_who_does_not_go_on_within_its_look_is_ended(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped, or a machine that sleeps: all removals waited for it without end."""
    monkeypatch.setattr(locks, "LOOK_S", 1)
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings) as other:
        collection = make_collection(catalog)
        catalog.documents.replace(collection, *document(["text"]))
        with ThreadPoolExecutor() as pool, pytest.raises(CatalogError), catalog.database.writing() as connection:
            last_look(connection)
            assert pool.submit(lose, other, collection).result(60).orphans == (digest("text"),)
            connection.exec_driver_sql("SELECT 1")
        catalog.collections.delete(collection)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE orphans")


@pytest.mark.postgres
def test_what_fails_behind_its_commit_is_no_failed_removal(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who tried it again would find no documents. What they leave behind is written down."""
    monkeypatch.setattr(locks, "LOOKS_S", 1)
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(postgres_url))
    with open_catalog(settings) as catalog, open_catalog(settings) as other:
        collection = make_collection(catalog)
        catalog.documents.replace(collection, *document(["text"]))
        with ThreadPoolExecutor() as pool, catalog.database.writing() as connection:
            last_look(connection)
            losing = pool.submit(lose, other, collection)
            while not losing.done():  # a look that goes on, and on
                connection.exec_driver_sql("SELECT pg_sleep(0.1)")
            assert losing.result() == Removed(1, 1, ())
        assert catalog.orphans.left_by(collection) == {digest("text")}
        catalog.collections.delete(collection)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE orphans")
