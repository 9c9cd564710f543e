from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ragcache.linking.base import LinkedPrompt, PlacedChunk, Reduction
from ragcache.scoring import Reuse
from ragcache.types import FloatArray, Profile

MakeChunk = Callable[..., PlacedChunk]
MakePrompt = Callable[..., LinkedPrompt]


class TablePrompt(LinkedPrompt):
    """A prompt whose measurements are given."""

    def __init__(
        self, chunks: list[PlacedChunk], question: int, attention: Sequence[float], deviations: dict[int, list[float]]
    ) -> None:
        self.ids = tuple(range(question + 1))
        self.question = question
        self.chunks = chunks
        self._attention = np.asarray(attention, dtype=np.float32)
        self._deviations = deviations

    def question_attention(self, reduction: Reduction, depth: float = 1.0) -> FloatArray:
        return self._attention

    def deviation(self, layers: int) -> FloatArray:
        return np.asarray(self._deviations[layers], dtype=np.float32)


def _chunk(
    index: int,
    start: int,
    length: int,
    *,
    inter: Sequence[Sequence[float]] | None = None,
    received: Sequence[float] | None = None,
    places: tuple[int, ...] | None = None,
    beta: float = 0.0,
    cci: float = 0.5,
    exact: bool = False,
) -> PlacedChunk:
    rows = np.asarray([[0.0] * length] if inter is None else inter, dtype=np.float32)
    profile = Profile(
        inter=rows,
        intra=np.zeros(length, dtype=np.float32),
        received=np.asarray([0.0] * length if received is None else received, dtype=np.float32),
        lengths=(4,) * len(rows),
    )
    reuse = Reuse(beta=beta, gamma=0.0, cci=cci, exact=exact, places=places or (-1,) * (len(rows) - 1))
    return PlacedChunk(index, start, length, profile, reuse, exact)


def _prompt(
    chunks: list[PlacedChunk],
    question: int,
    attention: Sequence[float] = (),
    deviations: dict[int, list[float]] | None = None,
) -> LinkedPrompt:
    return TablePrompt(chunks, question, attention, deviations or {})


@pytest.fixture
def chunk() -> MakeChunk:
    return _chunk


@pytest.fixture
def prompt() -> MakePrompt:
    return _prompt
