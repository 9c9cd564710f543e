"""Attention of scattered rows against one softmax per row and head."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.bias import CausalBias

from ragcache.engine.torch import attention
from ragcache.engine.torch.attention import (
    APART,
    attend,
    attend_in_groups,
    attention_weights,
    read_attention,
    row_blocks,
    weighted_values,
)
from tests.peak import peak_bytes
from tests.tiny import assert_close

HEADS, KV_HEADS, DIM, CAPACITY, SCALE = 6, 2, 8, 50, 0.3

rows_of_a_prompt = st.sets(st.integers(0, CAPACITY - 1), min_size=1).map(sorted)


def slow_weights(q: torch.Tensor, k: torch.Tensor, positions: list[int]) -> torch.Tensor:
    """[heads, n, capacity]"""
    weights = torch.zeros(HEADS, len(positions), CAPACITY)
    for head in range(HEADS):
        for row, position in enumerate(positions):
            seen = k[head // (HEADS // KV_HEADS), : position + 1]
            weights[head, row, : position + 1] = (seen @ q[head, row] * SCALE).softmax(0)
    return weights


def draw(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((HEADS, n, DIM), (KV_HEADS, CAPACITY, DIM), (KV_HEADS, CAPACITY, DIM))
    q, k, v = (torch.randn(shape, generator=generator) * 2 for shape in shapes)
    return q, k, v


@given(positions=rows_of_a_prompt, size=st.integers(1, 60))
def test_blocks_equal_the_loops(positions: list[int], size: int) -> None:
    q, k, v = draw(len(positions))
    weights = slow_weights(q, k, positions)
    expected = torch.einsum("hnc,hcd->nhd", weights, v.repeat_interleave(HEADS // KV_HEADS, 0)).flatten(1)
    blocks = row_blocks(torch.tensor(positions), torch.float32, size)
    k[:, positions[-1] + 1 :] = float("nan")  # what nobody sees is not read
    v[:, positions[-1] + 1 :] = float("nan")
    assert_close(attend(q, k, v, blocks, SCALE), expected, 1e-5)


runs_of_a_prompt = st.sets(st.integers(0, CAPACITY // 5 - 1), min_size=1).map(
    lambda runs: [5 * run + place for run in sorted(runs) for place in range(5)]
)


@given(positions=rows_of_a_prompt | runs_of_a_prompt, size=st.integers(1, 20))
def test_runs_in_one_piece_equal_the_loops(positions: list[int], size: int) -> None:
    """As on a GPU, whose kernels hold the mask that is written out here."""
    q, k, v = draw(len(positions))
    weights = slow_weights(q, k, positions)
    expected = torch.einsum("hnc,hcd->nhd", weights, v.repeat_interleave(HEADS // KV_HEADS, 0)).flatten(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "RUNS_ON", {("cpu", torch.float32)})
        blocks = row_blocks(torch.tensor(positions), torch.float32, size)
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == len(positions)
    k[:, positions[-1] + 1 :] = float("nan")
    v[:, positions[-1] + 1 :] = float("nan")
    assert_close(attend(q, k, v, blocks, SCALE), expected, 1e-5)


@given(positions=rows_of_a_prompt)
def test_groups_as_a_batch_equal_the_loops(positions: list[int]) -> None:
    """As on a GPU, of rows that lie as a projection leaves them."""
    q, k, v = draw(len(positions))
    weights, end = slow_weights(q, k, positions), positions[-1] + 1
    expected = torch.einsum("hnc,hcd->nhd", weights, v.repeat_interleave(HEADS // KV_HEADS, 0))
    mask = attention._mask(torch.tensor(positions), end, torch.float32)
    projected = q.transpose(0, 1).contiguous().transpose(0, 1)
    found = attend_in_groups(projected, k[:, :end], v[:, :end], mask, SCALE)
    assert_close(found.transpose(0, 1), expected, 1e-5)


def test_a_run_has_no_mask_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "RUNS_ON", {("cpu", torch.float32)})
    positions = [3, 4, 9, *range(100, 700), 900]
    blocks = row_blocks(torch.tensor(positions), torch.float32, 32)
    assert [(block.start, block.stop, block.end) for block in blocks] == [(0, 3, 10), (3, 603, 700), (603, 604, 901)]
    assert [isinstance(block.mask, CausalBias) for block in blocks] == [False, True, False]


@pytest.mark.slow
@given(positions=rows_of_a_prompt)
def test_explicit_weights_equal_the_loops(positions: list[int]) -> None:
    q, k, v = draw(len(positions))
    expected, end = slow_weights(q, k, positions), positions[-1] + 1
    weights = attention_weights(q, k, torch.tensor(positions), SCALE)
    assert_close(weights, expected[:, :, :end], 1e-5)
    blocks = row_blocks(torch.tensor(positions), torch.float32)
    assert_close(weighted_values(weights, v), attend(q, k, v, blocks, SCALE), 1e-5)


@pytest.mark.parametrize("nbytes", [0, 4000, 8000, 20_000, 1 << 20])
@pytest.mark.parametrize("positions", [[0], [*range(40, CAPACITY)], [3, 4, 9, 20, 48], list(range(CAPACITY))])
def test_what_is_read_in_blocks_is_what_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, nbytes: int, positions: list[int]
) -> None:
    """Blocks of rows, and of heads where a row has too many."""
    q, k, v = draw(len(positions))
    weights = slow_weights(q, k, positions)
    monkeypatch.setattr(attention, "READ_BYTES", nbytes)
    done = 0
    for read in read_attention(q, k, torch.tensor(positions), SCALE, v):
        assert read.start == done
        done, end = read.stop, positions[read.stop - 1] + 1
        expected = weights[:, read.start : read.stop]
        assert_close(read.mean, expected.mean(0)[:, :end], 1e-5)
        attended = torch.einsum("hnc,hcd->nhd", expected, v.repeat_interleave(HEADS // KV_HEADS, 0)).flatten(1)
        assert read.attended is not None
        assert_close(read.attended, attended, 1e-5)
    assert done == len(positions)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(8, 2), (32, 32), (64, 8)])
def test_reading_takes_no_more_than_it_may(heads: tuple[int, int]) -> None:
    rows, positions, dim = 300, 16_384, 128
    q, k = torch.randn(heads[0], rows, dim), torch.randn(heads[1], positions, dim, dtype=torch.bfloat16)
    places = torch.arange(positions - rows, positions)

    def read() -> None:
        for _ in read_attention(q, k, places, 0.1):
            pass

    row = 4 * positions * (2 * heads[0] // heads[1] + 2 + dim)
    assert peak_bytes(read) < 1.25 * max(attention.READ_BYTES, row)


@pytest.mark.parametrize(
    ("positions", "masked", "causal"),
    [([0, 1, 2], False, True), ([7], False, False), ([0], False, False), ([3, 4], True, False), ([0, 2], True, False)],
)
def test_a_mask_is_made_only_where_it_is_needed(positions: list[int], masked: bool, causal: bool) -> None:
    (block,) = row_blocks(torch.tensor(positions), torch.float32)
    assert (block.mask is not None, block.causal) == (masked, causal)


@pytest.mark.parametrize("begin", [0, 100, 127, 128, 1000])
@pytest.mark.parametrize("count", [1, 20, 31, 32, 33, 64, 69, 300])
def test_neighbours_are_cut_by_their_positions(begin: int, count: int) -> None:
    """What is not full joins its neighbour, but across no multiple of APART."""
    blocks = row_blocks(torch.arange(begin, begin + count), torch.float32, 32)
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == count
    edges = {begin + block.start for block in blocks[1:]}
    assert all(edge % 32 == 0 for edge in edges)
    assert {place for place in range(begin + 1, begin + count) if place % APART == 0} <= edges
    assert all(block.stop - block.start < 3 * 32 for block in blocks)
    assert len(blocks) <= -(-count // 32) + len([edge for edge in edges if edge % APART == 0])


def test_scattered_rows_share_blocks() -> None:
    """Each of which is as dear as a full one."""
    blocks = row_blocks(torch.arange(0, 900, 3), torch.float32, 32)
    assert len(blocks) == 10
    assert [block.stop - block.start for block in blocks] == [12, *[32] * 9]


def test_it_does_without_the_compiler() -> None:
    """Whose import takes longer than a first token."""
    code = "import sys, ragcache.engine.torch.engine; print('torch._dynamo' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
