"""The history of the cache: sums of many processes, within bounds, of collections and chunks that are there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.errors import CatalogError
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.cache_history import DAY, EVER, HOUR, KEPT, LONGEST_TEXT, MINUTE
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import CacheTally
from app.settings import Settings
from tests.app.library.catalog.samples import document, make_collection
from tests.waiting import wait_until

SECOND = 20_782 * DAY + 5 * HOUR + 7 * MINUTE + 3
PATIENCE_S = 30.0
ANSWER = CacheTally(
    answers=1, reused=90, repaired=6, computed=4, ram=50, disk=40, first_s=0.5, compared=1, compared_s=1.5
)


def chunks_of(catalog: Catalog, collection: Collection, words: list[str], source: str = "/docs/a.txt") -> list[int]:
    record, chunks = document(words, source=source)
    return list(catalog.documents.replace(collection, record, chunks).chunk_ids)


def test_each_answer_counts_in_a_minute_an_hour_a_day_and_for_ever(catalog: Catalog, collection: Collection) -> None:
    for second in (SECOND, SECOND + 10, SECOND + 2 * MINUTE, SECOND + 2 * DAY):
        catalog.cache_history.add({(collection.id, second): ANSWER})
    history = catalog.cache_history
    found = {step: [(one.start, one.tally.answers) for one in history.points(step, 0)] for step in (*KEPT, EVER)}
    minute = SECOND - 3
    assert found == {
        MINUTE: [(minute + 2 * DAY, 1)],  # older ones are not kept
        HOUR: [(minute - 7 * MINUTE, 3), (minute - 7 * MINUTE + 2 * DAY, 1)],
        DAY: [(SECOND // DAY * DAY, 3), (SECOND // DAY * DAY + 2 * DAY, 1)],
        EVER: [(0, 4)],
    }
    assert history.ever(collection) == CacheTally(4, 360, 24, 16, 200, 160, first_s=2.0, compared=4, compared_s=6.0)
    assert [one.start for one in history.points(HOUR, SECOND)] == [minute - 7 * MINUTE + 2 * DAY]


def test_it_has_bounds(catalog: Catalog, collection: Collection) -> None:
    history = catalog.cache_history
    for day in range(0, 900, 100):
        history.add({(collection.id, SECOND + (day + one) * DAY): ANSWER for one in range(100)})
    for step, most in KEPT.items():
        assert 0 < len(history.points(step, 0)) <= most
    assert history.ever(collection).answers == 900


def test_what_several_add_is_summed(settings: Settings, catalog: Catalog, collection: Collection) -> None:
    """Each of two has the database open for itself, as two processes have."""
    (chunk, _) = chunks_of(catalog, collection, ["one", "two"])

    def add(place: int) -> None:
        with open_catalog(settings) as own:
            for _ in range(10):
                wait_until(lambda: written(own, place), PATIENCE_S)

    def written(own: Catalog, place: int) -> bool:
        try:
            own.cache_history.add({(collection.id, SECOND + place): ANSWER}, {(collection.id, chunk): (1, 7)})
        except CatalogError:  # the other one is at it, and nobody waits for that
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))
    assert catalog.cache_history.ever(collection).answers == 20
    (reused,) = catalog.cache_history.reused(10)
    assert (reused.chunk_id, reused.uses, reused.reused) == (chunk, 20, 140)


def test_chunks_that_served_most_come_first_with_their_texts(catalog: Catalog, collection: Collection) -> None:
    long = "w" * (2 * LONGEST_TEXT)
    first, second, odd = chunks_of(catalog, collection, ["one", long, "\x00\ud800"])
    uses = {first: (1, 3), second: (4, 99), odd: (2, 5)}
    catalog.cache_history.add({}, {(collection.id, chunk): use for chunk, use in uses.items()})
    found = catalog.cache_history.reused(10)
    assert [(one.chunk_id, one.uses, one.text) for one in found] == [
        (second, 4, long[:LONGEST_TEXT]),
        (odd, 2, "\x00\ud800"),
        (first, 1, "one"),
    ]
    assert (found[2].source, found[2].start, found[2].end) == ("/docs/a.txt", 0, 3)
    assert [one.chunk_id for one in catalog.cache_history.reused(1)] == [second]


def test_a_text_that_two_collections_have_counts_where_it_was_asked_for(
    catalog: Catalog, collection: Collection
) -> None:
    other = make_collection(catalog, "other")
    (mine,), (theirs,) = chunks_of(catalog, collection, ["same"]), chunks_of(catalog, other, ["same"])
    catalog.cache_history.add({(collection.id, SECOND): ANSWER}, {(collection.id, mine): (3, 9)})
    assert catalog.cache_history.reused(10, [other.id]) == []
    assert catalog.cache_history.points(HOUR, 0, [other.id]) == []
    assert catalog.cache_history.ever(other) == CacheTally()
    assert catalog.cache_history.reused(10, []) == catalog.cache_history.points(HOUR, 0, []) == []
    catalog.cache_history.add({}, {(collection.id, theirs): (5, 9)})
    assert catalog.cache_history.reused(10, [other.id]) == [], "a chunk counts for its own collection alone"


def test_it_goes_with_the_chunk_and_with_the_collection(catalog: Catalog, collection: Collection) -> None:
    gone, kept = chunks_of(catalog, collection, ["one"]), chunks_of(catalog, collection, ["two"], "/docs/b.txt")
    uses = {(collection.id, chunk): (1, 2) for chunk in (*gone, *kept)}
    catalog.cache_history.add({(collection.id, SECOND): ANSWER}, uses)
    document_id = catalog.cache_history.reused(1)[0].document_id
    catalog.documents.delete(collection, [document_id])
    assert [one.chunk_id for one in catalog.cache_history.reused(10)] == kept
    catalog.cache_history.add({(collection.id, SECOND): ANSWER}, uses)  # of an answer that saw it still
    assert [(one.chunk_id, one.uses) for one in catalog.cache_history.reused(10)] == [(kept[0], 2)]
    catalog.collections.delete(collection)
    catalog.cache_history.add({(collection.id, SECOND): ANSWER}, uses)
    assert catalog.cache_history.points(EVER, 0) == catalog.cache_history.reused(10) == []


def test_what_was_captured_is_summed(catalog: Catalog, collection: Collection) -> None:
    for seconds in (1.5, 2.0):
        catalog.cache_history.captured(collection, 100, seconds)
    ever = catalog.cache_history.ever(collection)
    assert (ever.captured, ever.captured_s) == (200, pytest.approx(3.5))
