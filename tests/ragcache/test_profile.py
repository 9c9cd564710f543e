"""The builder against loops over whole attention matrices."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.profile import ProfileBuilder
from ragcache.types import Profile
from tests import reference


def attention_of(layers: int, heads: int, tokens: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(layers, heads, tokens, tokens, generator=generator) * 3
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1)


def assert_same(left: Profile, right: Profile, tolerance: float = 1e-6) -> None:
    assert left.lengths == right.lengths
    for field in ("inter", "intra", "received"):
        np.testing.assert_allclose(getattr(left, field), getattr(right, field), atol=tolerance)
        assert getattr(left, field).dtype == np.float32


@given(
    lengths=st.tuples(st.integers(0, 4), st.lists(st.integers(1, 4), max_size=3), st.integers(1, 5)),
    maps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 2**31),
)
def test_builder_equals_the_loops(lengths: tuple[int, list[int], int], maps: tuple[int, int], seed: int) -> None:
    (layers, heads), (system, context, n) = maps, lengths
    segments = [system, *context, n]
    attention = attention_of(layers, heads, sum(segments), seed)
    builder = ProfileBuilder(segments[:-1], n, layers)
    for layer in attention:
        builder.add(layer[:, -n:])
    built = builder.build()
    assert_same(built, reference.profile(attention.numpy(), segments))
    # Each token spends 1: on the System, the context, its own chunk, and itself (the rest).
    assert np.all(built.inter.sum(axis=0) + built.intra <= 1 + 1e-5)


@pytest.mark.slow
@given(
    before=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    n=st.integers(1, 9),
    rows=st.integers(1, 9),
    causal=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_a_layer_may_come_in_blocks_of_rows(before: list[int], n: int, rows: int, causal: bool, order: Random) -> None:
    """In any order, with all keys or as many as the block's last row sees."""
    attention = attention_of(2, 3, sum(before) + n, 0)[:, :, -n:]
    whole, parts = ProfileBuilder(before, n, layers=2), ProfileBuilder(before, n, layers=2)
    blocks = [(layer, start) for layer in attention for start in range(0, n, rows)]
    for layer in attention:
        whole.add(layer)
    for layer, start in order.sample(blocks, len(blocks)):
        stop = min(start + rows, n)
        parts.add(layer[:, start:stop, : sum(before) + stop if causal else None], start)
    assert_same(whole.build(), parts.build())


@pytest.mark.parametrize(("layers", "heads"), [(1, 300), (300, 1)])
def test_half_precision_is_summed_in_float32(layers: int, heads: int) -> None:
    # In bfloat16 the sum, 302.34, would be rounded to 302 (heads), or stick at 256 (layers).
    builder = ProfileBuilder((1,), 1, layers)
    for _ in range(layers):
        builder.add(torch.full((heads, 1, 2), 1.0078125, dtype=torch.bfloat16))
    assert builder.build().inter[0, 0] == pytest.approx(1.0078125)


def test_added_tensors_are_only_read_and_build_may_be_called_again() -> None:
    layers = [torch.full((1, 2, 3), 0.25) for _ in range(2)]
    builder = ProfileBuilder((1,), 2, layers=2)
    for layer in layers:
        builder.add(layer)
    assert_same(builder.build(), builder.build())
    assert all(bool((layer == 0.25).all()) for layer in layers)


def test_missing_rows_and_foreign_shapes_are_refused() -> None:
    builder = ProfileBuilder((1,), 2, layers=2)
    with pytest.raises(AssertionError):
        builder.add(torch.zeros(1, 2, 4))  # keys that there are not
    with pytest.raises(AssertionError):
        builder.add(torch.zeros(1, 2, 3), start=1)  # rows that there are not
    builder.add(torch.zeros(1, 2, 3))
    builder.add(torch.zeros(1, 1, 3))
    with pytest.raises(AssertionError):
        builder.build()  # one row of the second layer has not come
    builder.add(torch.zeros(1, 1, 3), start=1)
    builder.build()
