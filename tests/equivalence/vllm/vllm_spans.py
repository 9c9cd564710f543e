"""Span forwards through vLLM's own model and paged cache, against transformers and the torch engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from vllm.forward_context import get_forward_context

from ragcache.engine.torch.attention import READ_BYTES
from ragcache.engine.torch.gauge import DEEP, PLACED, gauged, of_pass
from ragcache.engine.vllm.gauge import TURNS, gauge
from ragcache.engine.vllm.orders import Probe, PromptRows
from ragcache.engine.vllm.spans import Batch, SpanRunner
from ragcache.engine.vllm.taps import QuestionReader
from ragcache.linking.base import READ_TOKENS
from ragcache.loader import Block
from ragcache.rates import Rates, Work
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.peak import peak_bytes
from tests.tiny import assert_close, draw, stock, unrotated

TOKENS = 300


@pytest.fixture(
    scope="module",
    params=[("llama", 32, True), ("qwen2", 128, True), ("llama", 128, False)],
    ids=["llama-32", "qwen2-128", "llama-128-compiled"],
)
def pair(request: pytest.FixtureRequest, open_pair: OpenPair) -> Iterator[Pair]:
    family, block, eager = request.param
    with open_pair(family, block_size=block, enforce_eager=eager) as opened:
        yield opened


@pytest.fixture
def spans(pair: Pair) -> SpanRunner:
    """With garbage in every block: reading any of it shows."""
    runner = pair.engine._worker.spans
    for layer in runner.layers:
        layer.kv_cache.normal_(0, 30, generator=torch.Generator().manual_seed(0))
    return runner


def blocks(spans: SpanRunner, first: int = 3) -> tuple[int, ...]:
    """Not in order, so that the block row matters."""
    return tuple(reversed(range(first, first + -(-TOKENS // spans.block_size))))


def logits(spans: SpanRunner, hidden: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(spans.model.compute_logits(hidden)).float()


def compute(spans: SpanRunner, ids: tuple[int, ...], rows: Any, first: int = 3) -> torch.Tensor:
    own = tuple(int(row) for row in rows)
    (hidden,) = spans.compute([PromptRows(tuple(ids[row] for row in own), own, blocks(spans, first))])
    return logits(spans, hidden)


def place(spans: SpanRunner, k: torch.Tensor, v: torch.Tensor, *starts: int, skip: int = 0) -> None:
    """The same KV at each of these places."""
    room = spans.room(TOKENS)
    placed = [Block(start, 0, k, v) for start in starts]
    for block in placed:
        spans.place(block, room)
    spans.write(room, [block.span for block in placed], blocks(spans), skip)


def test_a_prompt_of_garbage_in_ascending_slices_equals_stock(pair: Pair, spans: SpanRunner) -> None:
    ids = draw(TOKENS, 0)
    expected = stock(pair.tiny.model, ids)
    for start, stop in ((0, 1), (1, 130), (130, 131), (131, TOKENS)):
        assert_close(compute(spans, ids, range(start, stop)), expected.logits[start:stop])


@pytest.mark.parametrize("seed", range(3))
def test_random_spans_over_spoiled_kv_equal_stock(pair: Pair, spans: SpanRunner, seed: int) -> None:
    ids = draw(TOKENS, seed)
    expected = stock(pair.tiny.model, ids)
    compute(spans, ids, range(TOKENS))
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(np.repeat(random.random(TOKENS) < 0.4, random.integers(1, 9, TOKENS))[:TOKENS])
    noise = torch.full((pair.engine.spec.layers, pair.engine.spec.kv_heads, 1, pair.engine.spec.head_dim), 30.0)
    for row in rows:
        place(spans, noise, noise, int(row))
    assert_close(compute(spans, ids, rows), expected.logits[rows])


def test_placed_kv_is_read_as_the_torch_engine_reads_it(pair: Pair, spans: SpanRunner) -> None:
    """KV of another prompt, at another place: what comes behind it is neither stock's, nor may it differ from ours."""
    ids, engine = draw(TOKENS, 5), pair.torch.engine
    foreign = stock(pair.tiny.model, draw(120, 6))
    k = unrotated(engine.decoder.rope, foreign.k, slice(0, 120))
    buffer = engine.buffer(TOKENS)
    engine.compute(ids[:100], range(100), buffer)
    engine.decoder.rope.rotate_into(buffer.k[:, :, 100:220], k, slice(100, 220))
    buffer.v[:, :, 100:220] = foreign.v
    rows = [*range(110, 115), 150, *range(220, TOKENS)]
    expected = engine.logits(engine.compute([ids[row] for row in rows], rows, buffer, keep=len(rows)))
    compute(spans, ids, range(100))
    place(spans, k, foreign.v, 100)
    assert_close(compute(spans, ids, rows), expected)


@pytest.mark.parametrize("size", [7, TOKENS])
@pytest.mark.parametrize("layers", [range(1), range(2), range(1, 2)])
def test_what_the_question_reads_in_some_layers(
    pair: Pair, spans: SpanRunner, monkeypatch: pytest.MonkeyPatch, layers: range, size: int
) -> None:
    """No more rows at once than a forward of vLLM's own has: here the question's, and what is missing before it."""
    monkeypatch.setattr(spans.config.scheduler_config, "max_num_batched_tokens", size)
    ids, question = draw(TOKENS, 10), TOKENS - 20
    expected = stock(pair.tiny.model, ids)
    compute(spans, ids, range(question - 10))
    own = range(question - 10, TOKENS)
    rows = PromptRows(ids[own.start :], tuple(own), blocks(spans))
    keys = expected.k[layers.start : layers.stop].clone()
    keys[:, :, own.start :] = 0
    weights = torch.stack(expected.attentions)[layers.start : layers.stop, :, question:, :question].mean((0, 1))
    most = spans.question_attention(Probe("", rows, question, layers, "max"), keys)
    np.testing.assert_allclose(most, weights.amax(0).numpy(), atol=1e-5)
    mean = spans.question_attention(Probe("", rows, question, layers, "mean"), keys)
    np.testing.assert_allclose(mean, weights.mean(0).numpy(), atol=1e-5)


def test_what_is_measured_before_any_request_foretells_a_pass(pair: Pair, spans: SpanRunner) -> None:
    told = gauge(spans)
    deep = min(DEEP, pair.engine.spec.max_tokens)
    most = min(deep, int(spans.config.scheduler_config.max_num_batched_tokens))
    once = [*map(of_pass, gauged(most, deep)), Work(placed=min(PLACED, most))]
    assert [one.work for one in told] == once * TURNS
    rates, before = Rates(), Rates()
    for one in told:
        rates.observe(one.work, one.seconds)
    for work in (one.work for one in told[: len(once)]):
        assert rates.seconds(work) < before.seconds(work) / 2  # the first guess is of a model a thousand times as large


def test_where_nothing_can_be_measured_vllm_starts_all_the_same(
    pair: Pair, spans: SpanRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(spans, "compute", fails)
        assert gauge(spans) == []
    monkeypatch.setattr(spans.config.cache_config, "num_gpu_blocks", None)
    assert gauge(spans) == []


def test_a_long_question_over_many_positions_is_read_in_little_memory() -> None:
    """1,000 tokens over 16k positions: their attention at once would be 526 MB for these 8 heads, twice."""
    positions, tokens, layers, dim = 16_384, 1000, 2, 64
    keys = torch.randn(layers, 2, positions + tokens, dim)
    q, k = torch.randn(8, tokens, dim), torch.randn(2, tokens, dim)

    def read() -> None:
        reader = QuestionReader(keys, range(positions, positions + tokens), positions, 0.1)
        for _ in range(layers):
            reader.read(q, k)
        assert reader.mean().shape == (READ_TOKENS, positions)

    assert peak_bytes(read) < 4 * READ_TOKENS * positions + 1.25 * READ_BYTES


def test_what_is_skipped_is_not_written(pair: Pair, spans: SpanRunner) -> None:
    ids = draw(TOKENS, 7)
    expected = stock(pair.tiny.model, ids)
    compute(spans, ids, range(TOKENS))
    noise = torch.full((pair.engine.spec.layers, pair.engine.spec.kv_heads, 90, pair.engine.spec.head_dim), 30.0)
    place(spans, noise, noise, 10, skip=100)
    assert_close(compute(spans, ids, range(290, TOKENS)), expected.logits[290:])
    place(spans, noise, noise, 10, skip=99)  # one token of it
    with pytest.raises(AssertionError):
        assert_close(compute(spans, ids, range(290, TOKENS)), expected.logits[290:])


def test_neighbours_and_others_in_one_write(pair: Pair, spans: SpanRunner) -> None:
    ids, engine = draw(TOKENS, 11), pair.torch.engine
    foreign = stock(pair.tiny.model, draw(30, 12))
    k, starts = unrotated(engine.decoder.rope, foreign.k, slice(0, 30)), (160, 40, 70, 220)
    buffer = engine.buffer(TOKENS)
    engine.compute(ids, range(TOKENS), buffer)
    compute(spans, ids, range(TOKENS))
    for start in starts:
        engine.decoder.rope.rotate_into(buffer.k[:, :, start : start + 30], k, slice(start, start + 30))
        buffer.v[:, :, start : start + 30] = foreign.v
    place(spans, k, foreign.v, *starts)
    rows = range(260, TOKENS)
    expected = engine.logits(engine.compute(ids[260:], rows, buffer, keep=len(rows)))
    assert_close(compute(spans, ids, rows), expected)


def test_several_prompts_in_one_forward(pair: Pair, spans: SpanRunner) -> None:
    prompts = [draw(TOKENS, seed) for seed in (8, 9)]
    rows = [
        PromptRows(ids, tuple(range(TOKENS)), blocks(spans, first)) for ids, first in zip(prompts, (3, 40), strict=True)
    ]
    for ids, hidden in zip(prompts, spans.compute(rows), strict=True):
        assert_close(logits(spans, hidden), stock(pair.tiny.model, ids).logits)


# -- rows that join a forward of vLLM's ------------------------------------------------------------------------------


def others(spans: SpanRunner, rows: PromptRows) -> torch.Tensor:
    """What vLLM does for requests of its own -> their hidden states."""
    with spans._context(Batch.of([rows]), [rows], compiled=True) as (ids, positions):
        assert spans.room_beside(get_forward_context()) > 0
        return torch.as_tensor(spans.model(input_ids=ids, positions=positions, intermediate_tensors=None))


@torch.inference_mode()
def test_joined_rows_and_those_they_join_equal_stock(pair: Pair, spans: SpanRunner) -> None:
    theirs, ours = draw(TOKENS, 13), draw(TOKENS, 14)
    expected = stock(pair.tiny.model, ours)
    compute(spans, ours, range(290))
    noise = torch.full((pair.engine.spec.layers, pair.engine.spec.kv_heads, 1, pair.engine.spec.head_dim), 30.0)
    spoiled = (3, 50, 51, 52, 200)
    for row in spoiled:
        place(spans, noise, noise, row)
    seconds: list[float] = []
    spans.join(
        [PromptRows(tuple(ours[row] for row in spoiled), spoiled, blocks(spans))], {}, seconds.append, pytest.fail
    )
    before = others(spans, PromptRows(theirs[:280], tuple(range(280)), blocks(spans, 40)))
    after = others(spans, PromptRows(theirs[280:], tuple(range(280, TOKENS)), blocks(spans, 40)))
    assert_close(logits(spans, torch.cat([before, after])), stock(pair.tiny.model, theirs).logits)
    assert_close(compute(spans, ours, range(290, TOKENS)), expected.logits[290:])
    assert len(seconds) == 1, "one forward, and not the one after it"


@torch.inference_mode()
def test_a_question_joined_by_its_repair_reads_it(pair: Pair, spans: SpanRunner) -> None:
    ids = draw(TOKENS, 15)
    compute(spans, ids, range(TOKENS))
    noise = torch.full((pair.engine.spec.layers, pair.engine.spec.kv_heads, 40, pair.engine.spec.head_dim), 30.0)
    place(spans, noise, noise, 100)
    repair, question = range(100, 140), range(280, TOKENS)
    spans.join([PromptRows(ids[100:140], tuple(repair), blocks(spans))], {}, lambda seconds: None, pytest.fail)
    hidden = others(spans, PromptRows(ids[280:], tuple(question), blocks(spans)))
    assert_close(logits(spans, hidden), stock(pair.tiny.model, ids).logits[280:])


@torch.inference_mode()
def test_a_forward_that_breaks_leaves_the_next_alone(spans: SpanRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = draw(TOKENS, 16)
    rows = PromptRows(ids, tuple(range(TOKENS)), blocks(spans))
    expected = others(spans, rows)
    spans.join([PromptRows(ids[:1], (0,), blocks(spans, 40))], {}, lambda seconds: None, lambda error: None)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="on purpose"):
        patch.setattr(spans.model, "forward", broken)
        others(spans, rows)
    assert_close(others(spans, rows), expected)


def broken(**inputs: Any) -> torch.Tensor:
    raise RuntimeError("on purpose")
