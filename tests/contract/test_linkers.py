"""What every linker of the registry promises. A new one needs a row in tests/linkers.py."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.linking import LINKERS, make_linker
from ragcache.linking.base import LinkedPrompt, PlacedChunk, Reduction
from ragcache.scoring import Prefix, reuse_of
from ragcache.types import FloatArray, Profile
from tests.linkers import LINKER_ROWS


@dataclass(frozen=True)
class Shape:
    """One chunk of a random prompt."""

    length: int
    context: int  # chunks that its variant was computed behind
    cached: bool
    exact: bool


class RandomPrompt(LinkedPrompt):
    """A System, chunks one after another, a question; all measurements at random, asked for ones counted."""

    def __init__(self, shapes: list[Shape], seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.chunks, start = [], 3
        for index, shape in enumerate(shapes):
            if shape.cached:
                self.chunks.append(self._placed(index, start, shape))
            start += shape.length
        self.question = start
        self.ids = tuple(range(start + 4))
        self._attention, self._deviation = self._row(start), self._row(start)
        self.asked = 0

    def _row(self, *shape: int) -> FloatArray:
        return self._random.random(shape, dtype=np.float32)

    def _placed(self, index: int, start: int, shape: Shape) -> PlacedChunk:
        rows, n = 1 + (index if shape.exact else shape.context), shape.length
        profile = Profile(self._row(rows, n), self._row(n), self._row(n), lengths=(3,) * rows)
        prefix = [f"chunk {i}" for i in range(index)]
        context = prefix if shape.exact else [f"stranger {i}" for i in range(rows - 1)]
        reuse = reuse_of(profile, context, Prefix(prefix))
        return PlacedChunk(index, start, n, profile, reuse, shape.exact)

    def question_attention(self, reduction: Reduction, depth: float = 1.0) -> FloatArray:
        self.asked += 1
        tokens = np.stack([self._attention, self._attention[::-1]])  # of a question of two
        return tokens.max(0) if reduction == "max" else tokens.mean(0)

    def deviation(self, layers: int) -> FloatArray:
        self.asked += 1
        return self._deviation


SHAPES = st.lists(st.builds(Shape, st.integers(1, 60), st.integers(0, 3), st.booleans(), st.booleans()), max_size=5)


def test_every_linker_has_a_row() -> None:
    assert set(LINKER_ROWS) == set(LINKERS)


@pytest.mark.parametrize("name", LINKERS)
def test_a_name_makes_its_dataclass(name: str) -> None:
    linker = make_linker(name)
    assert linker.name == name
    assert type(linker) is LINKERS[name]
    assert is_dataclass(linker)
    assert linker == make_linker(name)


@pytest.mark.parametrize("name", LINKERS)
@given(shapes=SHAPES, seed=st.integers(0, 2**32))
def test_a_selection_keeps_the_contract(name: str, shapes: list[Shape], seed: int) -> None:
    prompt = RandomPrompt(shapes, seed)
    selected = make_linker(name).select(prompt)

    assert selected.dtype == np.int64
    assert selected.ndim == 1
    assert np.all(np.diff(selected) > 0), "ascending, each once"
    open_to_repair = [chunk for chunk in prompt.chunks if not chunk.unchanged]
    assert set(selected.tolist()) <= {p for chunk in open_to_repair for p in range(chunk.start, chunk.end)}
    assert len(selected) <= LINKER_ROWS[name].budget(open_to_repair)
    assert prompt.asked <= (1 if open_to_repair else 0), "compute is asked for once, and not without a choice to make"
    again = make_linker(name).select(RandomPrompt(shapes, seed))
    np.testing.assert_array_equal(selected, again)


@pytest.mark.parametrize("name", [name for name in LINKERS if name != "naive"])
def test_something_is_repaired_in_a_new_context(name: str) -> None:
    shapes = [Shape(length=50, context=2, cached=True, exact=False) for _ in range(3)]
    assert len(make_linker(name).select(RandomPrompt(shapes, seed=0))) > 0
