"""Our forward against transformers' own, over the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ragcache.engine.torch import attention, forward
from ragcache.engine.torch.decoder import Decoder, KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forward import PREFILL_ROWS
from tests.tiny import Stock, Tiny, assert_close, draw, garbage, make_config, make_model, make_tiny, stock, to_dtype

TOKENS = 150  # more than one block of rows


def assert_same_kv(buffer: KVBuffer, expected: Stock, tolerance: float = 1e-4) -> None:
    n = expected.k.shape[2]
    assert_close(buffer.k[:, :, :n], expected.k, tolerance)
    assert_close(buffer.v[:, :, :n], expected.v, tolerance)


def test_prefill(every_tiny: Tiny) -> None:
    ids, engine = draw(TOKENS, 0), every_tiny.engine
    expected, buffer = stock(every_tiny.model, ids), garbage(engine, TOKENS + 3)
    hidden = engine.compute(ids, range(TOKENS), buffer, keep=TOKENS)
    assert_close(engine.logits(hidden), expected.logits)
    assert_same_kv(buffer, expected)


def test_decoding_token_by_token(every_tiny: Tiny) -> None:
    ids, engine = draw(40, 1), every_tiny.engine
    expected, buffer = stock(every_tiny.model, ids), garbage(engine, 40)
    logits = [engine.logits(engine.compute([token], [place], buffer))[0] for place, token in enumerate(ids)]
    assert_close(torch.stack(logits), expected.logits)
    assert_same_kv(buffer, expected)


@pytest.mark.parametrize("seed", range(3))
def test_scattered_spans_over_garbage(every_tiny: Tiny, seed: int) -> None:
    """The first pass computes every other span over the right KV, the second spoils them and repairs them at once."""
    ids, engine = draw(TOKENS, seed), every_tiny.engine
    expected, buffer = stock(every_tiny.model, ids), garbage(engine, TOKENS)
    random = np.random.default_rng(seed)
    engine.compute(ids, range(TOKENS), buffer)
    rows = np.flatnonzero(np.repeat(random.random(TOKENS) < 0.5, random.integers(1, 9, TOKENS))[:TOKENS])
    rows = np.union1d(rows, [TOKENS - 1])
    buffer.k[:, :, rows] = 30.0
    buffer.v[:, :, rows] = -30.0
    hidden = engine.compute([ids[row] for row in rows], rows.tolist(), buffer, keep=len(rows))
    assert_close(engine.logits(hidden), expected.logits[rows])
    assert_same_kv(buffer, expected)


def test_spans_that_cover_a_prompt_of_garbage(every_tiny: Tiny) -> None:
    """In any number of passes, each over all that is still garbage to its left: the last pass sees none."""
    ids, engine = draw(TOKENS, 5), every_tiny.engine
    expected, buffer = stock(every_tiny.model, ids), garbage(engine, TOKENS)
    for start, stop in ((0, 1), (1, 2), (2, 60), (60, 131), (131, TOKENS)):
        hidden = engine.compute(ids[start:stop], range(start, stop), buffer, keep=stop - start)
        assert_close(engine.logits(hidden), expected.logits[start:stop])
    assert_same_kv(buffer, expected)


@pytest.fixture(scope="module")
def long_tiny() -> Tiny:
    return make_tiny(max_position_embeddings=1200, num_hidden_layers=2)


def test_a_prompt_in_turns(long_tiny: Tiny) -> None:
    count = 2 * PREFILL_ROWS + 70
    ids, engine = draw(count, 2), long_tiny.engine
    expected, buffer = stock(long_tiny.model, ids), garbage(engine, count)
    hidden = engine.compute(ids, range(count), buffer, keep=PREFILL_ROWS + 80)  # from the last three turns
    assert_close(engine.logits(hidden), expected.logits[-PREFILL_ROWS - 80 :])
    assert_same_kv(buffer, expected)


def test_scattered_rows_in_turns(long_tiny: Tiny) -> None:
    count = 1200
    ids, engine = draw(count, 3), long_tiny.engine
    expected, buffer = stock(long_tiny.model, ids), garbage(engine, count)
    engine.compute(ids, range(count), buffer)
    rows = [row for row in range(count) if row % 4]
    buffer.k[:, :, rows] = 30.0
    buffer.v[:, :, rows] = 30.0
    assert_close(engine.logits(engine.compute([ids[row] for row in rows], rows, buffer)), expected.logits[rows[-1] :])
    assert_same_kv(buffer, expected)


@pytest.mark.usefixtures("one_thread")
def test_what_can_wait_holds_the_rows_of_one_turn(long_tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,200, and pauses before each turn in each layer."""
    count, engine = 1200, long_tiny.engine
    ids, whole, buffer = draw(count, 3), engine.buffer(count, apart=True), engine.buffer(count)
    engine.compute(ids, range(count), whole)
    forward, held, pauses = Decoder.forward, list[int](), list[int]()

    def counted(self: Decoder, hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
        held.append(hidden.untyped_storage().nbytes() // hidden[0].nbytes)
        return forward(self, hidden, *rest)

    monkeypatch.setattr(Decoder, "forward", counted)
    engine.compute_patiently(ids, range(count), buffer, pause=lambda: pauses.append(len(held)))
    assert max(held) == PREFILL_ROWS
    assert pauses == list(range(3 * engine.spec.layers))
    assert torch.equal(buffer.k, whole.k)
    assert torch.equal(buffer.v, whole.v)


def test_runs_in_one_piece(every_tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: a prefill in turns without masks, then runs of it among scattered rows."""
    monkeypatch.setattr(attention, "RUNS_ON", {("cpu", torch.float32)})
    monkeypatch.setattr(forward, "PREFILL_ROWS", 60)
    ids, engine = draw(TOKENS, 5), every_tiny.engine
    expected, buffer = stock(every_tiny.model, ids), garbage(engine, TOKENS)
    hidden = engine.compute(ids, range(TOKENS), buffer, keep=TOKENS)
    assert_close(engine.logits(hidden), expected.logits)
    rows = [3, 4, 9, *range(20, 70), 80, *range(100, TOKENS)]
    buffer.k[:, :, rows] = 30.0
    buffer.v[:, :, rows] = -30.0
    hidden = engine.compute([ids[row] for row in rows], rows, buffer, keep=len(rows))
    assert_close(engine.logits(hidden), expected.logits[rows])
    assert_same_kv(buffer, expected)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16(family: str) -> None:
    # The default weights: sharp attention over random ones makes rounding the larger part of any logit.
    config = make_config(family, initializer_range=0.05)
    torch.manual_seed(0)
    model = to_dtype(type(make_model(config))(config).eval(), torch.bfloat16)
    engine, ids = TorchEngine.from_model(model), draw(TOKENS, 4)
    expected, buffer = stock(model, ids), garbage(engine, TOKENS)
    assert engine.spec.dtype == buffer.k.dtype == torch.bfloat16
    hidden = engine.compute(ids, range(TOKENS), buffer, keep=TOKENS)
    assert_close(engine.logits(hidden), expected.logits, 5e-2)
    assert_same_kv(buffer, expected, 5e-2)
