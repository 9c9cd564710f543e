"""From ranked hits to the chunks of a prompt, without an index or a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.selection import DEEPER, MISFITS, MOST, Limits, beside, places_beside, select
from app.library.catalog.records import Document, Found, StoredChunk

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def found(number: int, tokens: int = 10, text: str | None = None, document: int = 1, kind: str = "prose") -> Found:
    said = f"text number {number}" if text is None else text
    digest = hashlib.sha256(said.encode()).hexdigest()
    chunk = StoredChunk(number, document, number, 0, len(said), said, tokens, digest, (), (), ())
    return Found(chunk, Document(document, 1, "/a", "", 0, 0, kind, "a", "ready", None, 0, NOW, NOW))


def numbers(chosen: Sequence[Found]) -> list[int]:
    return [one.chunk.id for one in chosen]


def test_a_number_ends_it_and_no_more_is_read() -> None:
    read = []

    def ranked() -> Iterator[Found]:
        for number in range(9):
            read.append(number)
            yield found(number)

    selection = select(ranked(), Limits(3))
    assert (numbers(selection.chosen), selection.ended, selection.notes) == ([0, 1, 2], True, ())
    assert read == [0, 1, 2]
    assert not select([found(0)], Limits(3)).ended


def test_a_budget_takes_what_fits_until_two_do_not() -> None:
    sizes = [40, 50, 30, 10, 80, 1]
    selection = select([found(number, size) for number, size in enumerate(sizes)], Limits(None, 100))
    assert MISFITS == 2
    assert (numbers(selection.chosen), selection.ended) == ([0, 1, 3], True)
    assert selection.notes == ("1 of 4 chunks left out: the budget of 100 tokens was full",)
    # What ranks behind the last one taken was not asked for.
    assert select([found(number, 50) for number in range(9)], Limits(None, 100)).notes == ()


def test_with_both_the_budget_takes_of_the_best() -> None:
    sizes = [40, 50, 30, 30, 30, 30, 30, 5, 5]
    selection = select([found(number, size) for number, size in enumerate(sizes)], Limits(8, 100))
    assert numbers(selection.chosen) == [0, 1, 7]
    assert selection.notes == ("5 of 8 chunks left out: the budget of 100 tokens was full",)


def test_the_best_is_taken_in_any_case() -> None:
    selection = select([found(0, 300), found(1, 20)], Limits(None, 100))
    assert numbers(selection.chosen) == [0]
    assert selection.notes == ("the best chunk alone takes 300 tokens, more than the budget of 100",)
    assert select([], Limits(None, 100)).chosen == ()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 300)), max_size=40),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 1000),
)
def test_what_is_selected(ranked: list[tuple[int, int]], most: int | None, budget: int) -> None:
    hits = [found(place, size, f"text number {text}") for place, (text, size) in enumerate(ranked)]
    selection = select(hits, Limits(most, budget))
    chosen = selection.chosen
    assert selection == select(hits, Limits(most, budget))
    assert bool(chosen) == bool(hits)
    assert chosen[:1] == tuple(hits[:1])
    assert numbers(chosen) == sorted(numbers(chosen))  # as they were ranked
    assert len({one.chunk.text for one in chosen}) == len(chosen) <= (most or len(hits))
    assert len(chosen) <= 1 or sum(one.chunk.tokens for one in chosen) <= budget
    # Whatever was looked at and left out would not have fitted where it stood.
    for one in hits[: chosen[-1].chunk.id] if chosen else []:
        before = [other for other in chosen if other.chunk.id < one.chunk.id]
        copy = one.chunk.text in {other.chunk.text for other in chosen}
        full = sum(other.chunk.tokens for other in before) + one.chunk.tokens > budget
        assert one in chosen or copy or full


def test_a_budget_counts_what_a_prompt_puts_around_a_chunk() -> None:
    hits = [found(number, 10) for number in range(9)]
    assert len(select(hits, Limits(None, 100)).chosen) == 9
    assert len(select(hits, Limits(None, 100, joins=3)).chosen) == 7
    document = [found(number) for number in range(3)]
    assert len(beside([document[1]], document, Limits(None, 36, 1, joins=2))) == 2
    assert len(beside([document[1]], document, Limits(None, 35, 1, joins=2))) == 1


@pytest.mark.parametrize("limits", [Limits(5), Limits(10**30), Limits(None, 10**12), Limits(None, 900)])
@pytest.mark.parametrize("live", [0, 1, 16, 10**5, 10**7])
def test_a_search_goes_no_deeper_than_is_of_use(limits: Limits, live: int) -> None:
    depths = list(limits.depths(lambda: live))
    assert depths == sorted(set(depths))
    assert depths[0] >= 1
    usual = 2 * limits.expected if 2 * limits.expected <= MOST else 1  # which asks nobody how many there are
    assert depths[-1] == max(usual, min(live, max(MOST, 2 * limits.expected)))
    assert all(deeper <= DEEPER * depth for depth, deeper in pairwise(depths))
    assert len(depths) <= 5


def test_neighbours_of_the_best_come_first() -> None:
    document = [found(number) for number in range(8)]
    hits = [document[5], document[1]]
    assert places_beside(hits, 1) == [(1, 0), (1, 2), (1, 4), (1, 6)]
    assert [place for _, place in places_beside([document[0]], 2)] == [1, 2]

    def joined(neighbours: int, budget: int = 0) -> list[tuple[int, int]]:
        return [(one.chunk.id, hit.chunk.id) for one, hit in beside(hits, document, Limits(2, budget, neighbours))]

    assert joined(1) == [(4, 5), (6, 5), (0, 1), (2, 1)]
    assert joined(2) == [(4, 5), (3, 5), (6, 5), (7, 5), (0, 1), (2, 1)]
    assert joined(1, 45) == [(4, 5), (6, 5)]
    assert joined(1, 20) == []


def test_a_side_ends_where_one_does_not_fit_or_is_missing() -> None:
    document = [found(0), found(1), found(2, 90), found(3, 5)]
    assert [one.chunk.id for one, _ in beside([document[1]], document, Limits(1, 30, 2))] == [0]
    assert [one.chunk.id for one, _ in beside([document[0]], [document[2]], Limits(1, 0, 2))] == []


def test_what_replaced_a_document_stands_beside_no_hit_of_it() -> None:
    hit, now = found(1), [found(0), found(2)]
    replaced = [Found(one.chunk, replace(one.document, content_hash="b")) for one in now]
    assert len(beside([hit], now, Limits(1, 0, 1))) == 2
    assert beside([hit], replaced, Limits(1, 0, 1)) == []


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=20),
    st.lists(st.integers(0, 19), unique=True, max_size=5),
    st.integers(1, 3),
    st.integers(0, 900),
)
def test_neighbours_keep_the_budget(sizes: list[int], places: list[int], neighbours: int, budget: int) -> None:
    document = [found(number, size) for number, size in enumerate(sizes)]
    hits = [document[place] for place in places if place < len(document)]
    there = [one for one in document if (1, one.chunk.ordinal) in places_beside(hits, neighbours)]
    joined = beside(hits, there, Limits(len(hits) or 1, budget, neighbours))
    every = [*numbers(hits), *(one.chunk.id for one, _ in joined)]
    assert len(set(every)) == len(every)
    assert all(abs(one.chunk.ordinal - hit.chunk.ordinal) <= neighbours for one, hit in joined)
    if joined and budget:
        assert sum(sizes[number] for number in every) <= budget
    if not budget:
        assert set(every) == set(numbers(hits)) | {one.chunk.id for one in there}
