"""What a catalog writes down for others has a bound: runs of ingests, and chunks that are gone."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.catalog.tables import RETIREMENTS
from tests.app.library.catalog.samples import document, make_collection


def ingested(catalog: Catalog, collection: Collection, texts: list[str]) -> None:
    """As an ingest does that replaces a document."""
    run = catalog.runs.start(collection)
    catalog.documents.replace(collection, *document(texts))
    catalog.runs.finish(run, "done", {"tokens": len(texts)})


def gone(catalog: Catalog, collection: Collection) -> int:
    with catalog.database.reading() as connection:
        query = select(func.count()).where(RETIREMENTS.c.collection_id == collection.id)
        return connection.scalar(query) or 0


def test_the_newest_runs_are_kept(catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.library.catalog.collections.MOST_RUNS", 3)
    other = make_collection(catalog, "other")
    ingested(catalog, other, ["a"])
    for number in range(8):
        ingested(catalog, collection, [f"a{number}"])
    runs = catalog.runs.newest(collection)
    assert [run.id for run in runs] == [9, 8, 7] and len(catalog.runs.newest(other)) == 1
    catalog.runs.start(collection)
    assert [run.state for run in catalog.runs.newest(collection)] == ["running", "done", "done"]


@pytest.mark.parametrize("live", [2, 20])
def test_no_more_is_told_of_what_is_gone_than_indexes_have_a_use_for(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch, live: int
) -> None:
    """Twice what is there, or a little more where that is little; the newest of it."""
    monkeypatch.setattr("app.library.catalog.chunks.LEAST_LOG", 8)
    other = make_collection(catalog, "other")
    for number in range(3):
        ingested(catalog, other, [f"{number}"])
    most = max(8, 2 * live)
    for number in range(20):
        ingested(catalog, collection, [f"{number} {place}" for place in range(live)])
        assert gone(catalog, collection) <= most * 3 // 2 + live
    source = catalog.source(collection)
    log, (*_, last) = source.retired(0), source.live_ids({}).tolist()
    assert most <= len(log) < 19 * live and log[-1] == (source.position().retired, last - live)
    assert [one for _, one in log] == list(range(last - live - len(log) + 1, last - live + 1))
    assert gone(catalog, other) == 2


def test_a_log_of_before_there_was_a_bound_goes_a_part_at_each_ingest(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.library.catalog.chunks.LEAST_LOG", 4)
    monkeypatch.setattr("app.library.catalog.chunks.LEAST_SHORTENED", 5)
    for number in range(21):
        catalog.documents.replace(collection, *document([f"a{number}"]))
    left = []
    for _ in range(5):
        catalog.runs.start(collection)
        left.append(gone(catalog, collection))
    assert left == [15, 10, 5, 5, 5], "no more than a half above its bound"


def test_an_old_log_is_shortened_when_numbers_count_over_many_collections(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is then shorter than its numbers say."""
    monkeypatch.setattr("app.library.catalog.chunks.LEAST_LOG", 4)
    other = make_collection(catalog, "other")
    for number in range(12):
        ingested(catalog, collection, [f"a{number}"])
        ingested(catalog, other, [f"{number} {place}" for place in range(5)])
        assert gone(catalog, collection) <= 6
    assert gone(catalog, collection) >= 4
