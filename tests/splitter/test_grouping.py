"""The runs are the best of all, by trying all."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter.base import ChunkLimits, Offsets, Vectors
from splitter.semantic import GAINS, Aim, group
from splitter.units import Border, Units


def units(tokens: list[int], borders: list[int] | None = None) -> Units:
    ends = np.cumsum(tokens)
    return Units(ends - tokens, ends, np.asarray(borders or [0] * len(tokens)), ends - tokens, ends)


def directions(names: str) -> Vectors:
    return np.eye(26, dtype=np.float32)[[ord(name) - 97 for name in names]]


def worth(runs: list[Offsets], given: Units, vectors: Vectors) -> float:
    weights = np.sqrt(given.tokens) / np.sqrt(given.tokens).mean()
    sums = [np.linalg.norm((vectors[a:b] * weights[a:b, None]).sum(axis=0)) for a, b in runs]
    return float(sum(sums) + sum(GAINS[given.borders[a]] for a, _ in runs))


@given(
    tokens=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    data=st.data(),
)
def test_no_other_runs_of_that_number_are_worth_more(tokens: list[int], data: st.DataObject) -> None:
    given = units(tokens, data.draw(st.lists(st.integers(0, 3), min_size=len(tokens), max_size=len(tokens))))
    names = data.draw(st.text(alphabet="abc", min_size=len(tokens), max_size=len(tokens)))
    aim, vectors = Aim(3, 8.0, 14), directions(names)

    def allowed(runs: list[Offsets]) -> bool:
        sizes = [sum(tokens[a:b]) for a, b in runs]
        return all(aim.least <= size <= aim.most for size in sizes)

    runs = group(given, aim, vectors)
    assert [a for a, _ in runs] + [len(tokens)] == [0] + [b for _, b in runs]
    cuts = combinations(range(1, len(tokens)), len(runs) - 1)
    others = [list(pairwise([0, *cut, len(tokens)])) for cut in cuts]
    if found := [other for other in others if allowed(other)]:
        assert allowed(runs)
        assert worth(runs, given, vectors) >= max(worth(other, given, vectors) for other in found) - 1e-6


def test_runs_end_where_meaning_turns() -> None:
    names = "aaaaabbbccccccdddd"
    runs = group(units([10] * len(names)), Aim(20, 45.0, 80), directions(names))
    assert [names[a:b] for a, b in runs] == ["aaaaa", "bbb", "cccccc", "dddd"]


@pytest.mark.parametrize("vectors", [None, directions("a" * 12)])
def test_runs_start_where_the_author_did(vectors: Vectors | None) -> None:
    borders = [Border.PARAGRAPH if place in (0, 5, 9) else Border.SENTENCE for place in range(12)]
    assert group(units([10] * 12, [*borders]), Aim(10, 40.0, 60), vectors) == [(0, 5), (5, 9), (9, 12)]


def test_a_unit_above_the_maximum_stands_alone() -> None:
    assert group(units([5, 90, 5]), Aim(1, 20.0, 30), directions("aba")) == [(0, 1), (1, 2), (2, 3)]


def test_the_aim_leaves_room_for_counting_alone() -> None:
    aim = Aim.of(ChunkLimits(32, 200))
    assert (aim.least, aim.most) == (36, 196)
    assert Aim.of(ChunkLimits(32, 200, 50)).most == 147
    assert Aim.of(ChunkLimits(10, 20)).least == 10


def test_nothing_has_no_runs() -> None:
    assert group(units([]), Aim(1, 2.0, 3), np.empty((0, 4), dtype=np.float32)) == []
