"""Texts that nobody has any more, of collections that lose them at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from app.library.catalog import open_catalog
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
