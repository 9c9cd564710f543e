"""Answers that repeat themselves, against a plain look at all of their tokens; and those that only seem to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.repetition import FEWEST_TOKENS, LONGEST_PERIOD, Repetition, least

OTHER = 10_000  # a token that stands nowhere else


def end(tokens: Iterable[int]) -> int | None:
    """How many tokens there are when the repetition is seen; None where there is none."""
    repetition = Repetition()
    return next((place for place, token in enumerate(tokens, start=1) if repetition.add(token)), None)


def plain_end(tokens: Sequence[int]) -> int | None:
    for place in range(1, len(tokens) + 1):
        for period in range(1, LONGEST_PERIOD + 1):
            last = tokens[place - least(period) : place] if place >= least(period) else ()
            if last and all(last[one] == last[one - period] for one in range(period, len(last))):
                return place
    return None


@pytest.mark.parametrize("period", range(1, LONGEST_PERIOD + 1))
def test_every_period_has_an_end(period: int) -> None:
    before = range(500, 500 + 37)
    assert end([*before, *islice(cycle(range(period)), 1000)]) == len(before) + least(period)


def test_a_short_run_comes_more_often_than_a_long_one() -> None:
    assert [-(-least(period) // period) for period in (1, 2, 6, 16, 32, 64)] == [128, 64, 22, 8, 4, 4]


def test_a_longer_run_is_none() -> None:
    assert end(islice(cycle(range(LONGEST_PERIOD + 1)), 5000)) is None


def test_one_other_token_begins_it_anew() -> None:
    almost = list(islice(cycle(range(6)), FEWEST_TOKENS - 1))
    assert end([*almost, OTHER] * 20) is None
    assert end([*almost, OTHER, *islice(cycle(range(6)), 500)]) == len(almost) + 1 + FEWEST_TOKENS


def test_a_list_that_counts_is_none() -> None:
    numbers = count(1000)
    assert end(token for _ in range(500) for token in (1, 2, 3, next(numbers))) is None


def test_it_goes_on_being_one() -> None:
    repetition = Repetition()
    assert [repetition.add(7) for _ in range(FEWEST_TOKENS + 3)][-4:] == [True] * 4
    assert not repetition.add(8)


@given(
    st.lists(st.integers(0, 1), max_size=40),
    st.lists(st.integers(0, 2), min_size=1, max_size=70),
    st.integers(1, 400),
    st.lists(st.integers(0, 1), max_size=40),
)
def test_it_is_seen_where_a_plain_look_sees_it(
    before: list[int], run: list[int], length: int, after: list[int]
) -> None:
    tokens = [*before, *islice(cycle(run), length), *after]
    assert end(tokens) == plain_end(tokens)


def test_it_remembers_no_more_than_the_longest_period() -> None:
    repetition = Repetition()
    for token in range(10_000):
        repetition.add(token)
    assert [len(one) for one in vars(repetition).values()] == [LONGEST_PERIOD, LONGEST_PERIOD]
