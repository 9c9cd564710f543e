"""The watch over a pass says what the slow reference of algorithm 1 says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragcache.errors import ConfigError
from ragcache.linking import linker_spec, make_linker
from ragcache.linking.base import Choice, LinkedPrompt, PlacedChunk
from ragcache.linking.focus import FocusWatch, leading_chunks, narrowed
from ragcache.scoring import Reuse
from ragcache.types import FloatArray, Profile
from tests.focus import Focus, focused_chunks, top_chunks

attention = st.tuples(st.integers(1, 12), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(0, 6).map(float))
)


def watched(attention: FloatArray, window: int) -> Focus:
    layers, chunks = attention.shape
    watch = FocusWatch(window)
    for layer, read in enumerate(attention.astype(np.float64).cumsum(axis=0), 1):
        if (focused := watch.see(read)) is not None:
            return Focus(focused, layer)
    return Focus(frozenset(range(chunks)), layers)


@given(attention, st.integers(1, 5))
def test_it_is_the_reference(attention: FloatArray, window: int) -> None:
    found, expected = watched(attention, window), focused_chunks(attention, window)
    assert found.chunks == expected.chunks
    if attention.shape[1] > 2:
        assert found.layer == expected.layer
    else:
        assert found.layer == len(attention), "with fewer than three chunks nothing is ever ended"


@given(arrays(np.float64, st.integers(3, 12), elements=st.floats(0, 1e3)))
def test_one_layer_is_the_reference(read: FloatArray) -> None:
    assert set(leading_chunks(np.asarray(read, dtype=np.float64)).tolist()) == top_chunks(read.tolist())


def test_a_window_is_a_number_of_layers() -> None:
    assert linker_spec(make_linker("cci:focus=8")) == "cci:focus=8"
    for spec in ("cci:focus=-1", "auto:focus=-1", "auto:depth=0.5,focus=3"):
        with pytest.raises(ConfigError, match="focus"):
            make_linker(spec)


class Read(LinkedPrompt):
    """Four chunks of three tokens, of which the question reads what it is told."""

    def __init__(self, *read: float):
        alone = np.ones(3, np.float32)
        profile, reuse = Profile(alone[np.newaxis], alone, alone, (1,)), Reuse(0.0, 0.0, 0.5, False, ())
        self.chunks = [PlacedChunk(place, 1 + 3 * place, 3, profile, reuse, False) for place in range(len(read))]
        self.question, self.read, self.asked = 1 + 3 * len(read), read, 0

    def question_attention(self, reduction: str, depth: float = 1.0) -> FloatArray:
        self.asked += 1
        return np.repeat(np.asarray([0.0, *self.read], np.float32), [1, *[3] * len(self.read)])

    def deviation(self, layers: int) -> FloatArray:
        raise NotImplementedError


def test_by_a_probe_the_leading_chunks_alone_are_repaired() -> None:
    prompt = Read(0.25, 4.0, 0.5, 0.125)
    assert leading_chunks(np.array([0.75, 12.0, 1.5, 0.375])).tolist() == [1]
    chosen = narrowed(Choice(np.array([1, 2, 5, 6, 8, 10]), 0.25), prompt)
    assert (chosen.positions.tolist(), chosen.predicted) == ([5, 6], 0.25)


def test_a_probe_is_asked_where_there_is_something_to_leave_out() -> None:
    for prompt, positions in ((Read(0.1, 5.0), [1, 5]), (Read(0.1, 5.0, 0.2, 0.15), [])):
        assert narrowed(Choice(np.array(positions, np.int64)), prompt).positions.tolist() == positions
        assert prompt.asked == 0
