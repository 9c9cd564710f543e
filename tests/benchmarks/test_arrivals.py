from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.arrivals import Popularity, percentile, poisson_arrivals
from ragcache.errors import ConfigError


@given(rate=st.floats(0.1, 20), seconds=st.floats(0.1, 50), seed=st.integers(0, 9))
def test_arrivals_are_ascending_within_the_time_and_start_at_once(rate: float, seconds: float, seed: int) -> None:
    moments = poisson_arrivals(rate, seconds, [seed])
    assert moments[0] == 0
    assert moments == sorted(moments)
    assert moments[-1] < seconds
    assert moments == poisson_arrivals(rate, seconds, [seed])


def test_gaps_between_arrivals_are_exponential() -> None:
    gaps = [after - before for before, after in pairwise(poisson_arrivals(4.0, 5000, [1]))]
    assert mean(gaps) == pytest.approx(1 / 4, rel=0.03)
    assert mean(gap**2 for gap in gaps) == pytest.approx(2 / 4**2, rel=0.06), "twice the square of the mean"
    assert poisson_arrivals(4.0, 10, [1]) != poisson_arrivals(4.0, 10, [2])


@given(chunks=st.integers(1, 30), each=st.integers(1, 30), seed=st.integers(0, 9))
def test_a_request_is_about_different_chunks(chunks: int, each: int, seed: int) -> None:
    popularity = Popularity(chunks, 1.0, seed)
    if each > chunks:
        with pytest.raises(ConfigError, match=f"{each} different chunks per request, but there are {chunks}"):
            popularity.draw(3, each, [seed])
        return
    drawn = popularity.draw(3, each, [seed])
    assert [len(set(one)) for one in drawn] == [each] * 3
    assert set(chain.from_iterable(drawn)) <= set(range(chunks))
    assert drawn == popularity.draw(3, each, [seed])


def test_popularity_falls_with_the_rank() -> None:
    counts = Counter(one for (one,) in Popularity(50, 1.0, 3).draw(20_000, 1, [0])).most_common()
    assert counts[0][1] / counts[9][1] == pytest.approx(10, rel=0.2), "the tenth is asked for a tenth as often"
    even = Counter(one for (one,) in Popularity(50, 0.0, 3).draw(20_000, 1, [0])).most_common()
    assert even[0][1] < 1.5 * even[-1][1]


def test_the_same_chunks_are_popular_whoever_asks() -> None:
    favourites = [
        Counter(one for (one,) in Popularity(50, 1.5, 3).draw(3000, 1, [seed])).most_common(1)[0][0]
        for seed in range(4)
    ]
    assert len(set(favourites)) == 1
    first = [Popularity(50, 1.5, seed).draw(1000, 1, [0]) for seed in range(4)]
    assert len({Counter(one for (one,) in drawn).most_common(1)[0][0] for drawn in first}) > 1


def test_popular_chunks_tend_to_come_first() -> None:
    drawn = Popularity(50, 1.5, 3).draw(3000, 10, [0])
    favourite = Counter(chain.from_iterable(drawn)).most_common(1)[0][0]
    places = [one.index(favourite) for one in drawn if favourite in one]
    assert mean(places) < 2


def test_percentiles() -> None:
    assert percentile([3.0], 99) == 3.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([float(n) for n in range(101)], 99) == 99.0
    assert percentile([0.0, 1.0], 99) == pytest.approx(0.99)
