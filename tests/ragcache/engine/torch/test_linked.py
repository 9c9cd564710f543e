"""The linked prompt's measurements, and that KV is not copied on the way to attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch import forward
from ragcache.engine.torch.attention import READ_BYTES
from ragcache.engine.torch.forward import PREFILL_ROWS
from ragcache.engine.torch.generation import Prefilled
from ragcache.engine.torch.linked import TorchLinkedPrompt
from ragcache.linking.base import READ_TOKENS, Positions, Reduction
from ragcache.store import open_store
from ragcache.types import Text
from tests.focus import focused_chunks
from tests.peak import peak_bytes
from tests.tiny import Tiny, draw, make_chunks, make_question, make_system, make_tiny, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(30, 25, 28, 22)
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture
def cache(tiny: Tiny) -> ChunkCache:
    return filled(tiny)


def filled(tiny: Tiny, scale: int = 1) -> ChunkCache:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    list(cache.ingest(SYSTEM, make_chunks(*(len(chunk) * scale for chunk in DOCUMENT))))
    return cache


def linked(cache: ChunkCache, prefilled: Prefilled, missing: Positions = NONE) -> TorchLinkedPrompt:
    plan = prefilled.plan
    return TorchLinkedPrompt(cache.engine, prefilled.buffer, plan.ids, plan.question, [], missing)


@pytest.mark.parametrize("reduction", ["max", "mean"])
@pytest.mark.parametrize(
    ("depth", "layers", "charged"),
    [(1.0, slice(1, 3), len(QUESTION)), (0.67, slice(1, 2), pytest.approx(2 / 3)), (0.01, slice(0, 1), 1 / 3)],
)
def test_the_questions_attention_is_that_of_transformers(
    cache: ChunkCache, tiny: Tiny, depth: float, layers: slice, charged: float, reduction: Reduction
) -> None:
    """Over exact KV, where transformers computes it too; of the layers passed through, the later half."""
    prefilled = prefill_prompt(cache, [SYSTEM, *DOCUMENT[:3], QUESTION], linker="full")
    prompt = linked(cache, prefilled)
    attention = torch.stack(stock(tiny.model, prompt.ids).attentions)
    tokens = attention[layers, :, prompt.question :, : prompt.question].mean((0, 1))
    expected = tokens.amax(0) if reduction == "max" else tokens.mean(0)
    np.testing.assert_allclose(prompt.question_attention(reduction, depth), expected.numpy(), atol=1e-6)
    assert prompt.charged == charged, "the question is computed for good but for its last token"


@pytest.mark.parametrize("turn", [8, 30, 300])
def test_the_end_of_a_long_question_is_read(
    cache: ChunkCache, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Its last tokens alone, also where they take several turns."""
    monkeypatch.setattr(forward, "PREFILL_ROWS", turn)
    question = make_question(READ_TOKENS + 30)
    prompt = linked(cache, prefill_prompt(cache, [SYSTEM, *DOCUMENT[:3], question], linker="full"))
    read = prompt.question_attention("max")
    weights = torch.stack(stock(tiny.model, prompt.ids).attentions)[1:3, :, -READ_TOKENS:, : prompt.question]
    np.testing.assert_allclose(read, weights.mean((0, 1)).amax(0).numpy(), atol=1e-5)


def test_a_probe_reads_nothing_of_what_lay_where_something_is_missing(cache: ChunkCache) -> None:
    """Memory is lent again: it may hold another prompt's KV, or no numbers at all."""
    read = []
    for old in (1.0, float("nan")):
        prefilled = prefill_prompt(cache, [SYSTEM, *DOCUMENT[:3], QUESTION], linker="full")
        gone = np.arange(40, 65)
        prefilled.buffer.k[:, :, gone] = prefilled.buffer.v[:, :, gone] = old
        read.append(linked(cache, prefilled, gone).question_attention("max", 0.67))
    np.testing.assert_array_equal(*read)
    assert np.isfinite(read[0]).all()


def test_a_long_question_over_many_positions_is_read_in_little_memory() -> None:
    """1,000 tokens over 16k positions: of this model's 4 heads alone they would be 256 MB, twice."""
    positions, tokens = 16_384, 1000
    cache = filled(make_tiny(max_position_embeddings=positions + tokens))
    ids = draw(positions + tokens, 5)
    buffer = cache.engine.buffer(len(ids))
    buffer.k.normal_()
    buffer.v.normal_()
    prompt = TorchLinkedPrompt(cache.engine, buffer, ids, positions, [], NONE)
    masks = 2 * 4 * PREFILL_ROWS * len(ids)  # of a turn, and of those of its rows that are not read
    few = 8 << 20  # the rows' own activations, and their attention's buffers
    bound = 4 * READ_TOKENS * positions + READ_BYTES + masks + few
    assert peak_bytes(lambda: prompt.question_attention("max", 0.67)) < bound < 130 << 20


@pytest.mark.parametrize("depth", [1.0, 0.67, 0.01])
@pytest.mark.parametrize("repaired", [0, 20])
@pytest.mark.parametrize("missing", [0, 25])
def test_over_exact_kv_a_probe_changes_nothing(
    cache: ChunkCache, tiny: Tiny, depth: float, repaired: int, missing: int
) -> None:
    """What was computed before a probe's pause goes on where it stopped; what was not is computed from the start."""
    prefilled = prefill_prompt(cache, [SYSTEM, *DOCUMENT[:3], QUESTION], linker="full")
    gone = np.arange(40, 40 + missing)
    prefilled.buffer.k[:, :, gone] = prefilled.buffer.v[:, :, gone] = 1.0
    prompt = linked(cache, prefilled, gone)
    prompt.question_attention("max", depth)
    hidden = prompt.finish(np.arange(prompt.question - repaired, prompt.question))
    expected = stock(tiny.model, prompt.ids)
    torch.testing.assert_close(tiny.engine.logits(hidden)[0], expected.logits[-1], atol=1e-4, rtol=1e-4)
    n = len(prompt.ids)
    torch.testing.assert_close(prefilled.buffer.k[:, :, :n], expected.k, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prefilled.buffer.v[:, :, :n], expected.v, atol=1e-4, rtol=1e-4)


def test_the_last_token_reads_repaired_caches_in_every_layer(cache: ChunkCache, tiny: Tiny) -> None:
    """The answer starts from it. Here the question is that token alone, so a probe leaves no trace at all."""
    last = Text(QUESTION.ids[:1])
    prefilled = prefill_prompt(cache, [SYSTEM, *reversed(DOCUMENT), last])
    prompt = linked(cache, prefilled)
    prompt.question_attention("max", 0.67)
    everything = np.arange(len(SYSTEM), prompt.question)
    logits = tiny.engine.logits(prompt.finish(everything))[0]
    torch.testing.assert_close(logits, stock(tiny.model, prompt.ids).logits[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("window", [1, 2, 9])
@pytest.mark.parametrize("missing", [0, 12])
def test_the_repair_of_chunks_that_are_passed_over_ends_where_algorithm_1_says(
    cache: ChunkCache, tiny: Tiny, window: int, missing: int
) -> None:
    """All is repaired, so up to that layer the question reads what it reads in a prefill, where transformers tells."""
    prefilled = prefill_prompt(cache, [SYSTEM, *reversed(DOCUMENT), QUESTION], linker="naive")
    plan, buffer = prefilled.plan, prefilled.buffer
    chunks = [chunk.placed(chunk.candidates[0]) for chunk in plan.chunks]
    gone = np.arange(chunks[1].start, chunks[1].start + missing)
    prompt = TorchLinkedPrompt(tiny.engine, buffer, plan.ids, plan.question, chunks, gone)
    k, v = buffer.k.clone(), buffer.v.clone()
    expected = stock(tiny.model, prompt.ids)
    reads = torch.stack(expected.attentions).mean(1)[:, prompt.question :, : prompt.question].sum(1)
    by_chunk = torch.stack([reads[:, one.start : one.end].sum(1) for one in chunks], dim=1)
    focus = focused_chunks(by_chunk.numpy(), window)
    n, layers = len(prompt.ids), tiny.engine.spec.layers
    assert (focus.layer == window) if window == 1 else (focus.layer > 1), "the windows tell different stories"
    hidden = prompt.finish(np.arange(len(SYSTEM), prompt.question), window)
    ended = [one for place, one in enumerate(chunks) if place not in focus.chunks]
    stays = np.setdiff1d(np.concatenate([np.arange(one.start, one.end) for one in ended] or [NONE]), gone)
    for made, old, whole in ((buffer.k, k, expected.k), (buffer.v, v, expected.v)):
        below = made[: focus.layer, :, :n]
        torch.testing.assert_close(below, whole[: focus.layer], atol=1e-4, rtol=1e-4)
        assert torch.equal(made[focus.layer :, :, stays], old[focus.layer :, :, stays])
        if missing and focus.layer < layers:
            assert not torch.equal(made[focus.layer :, :, gone], old[focus.layer :, :, gone]), "nothing lay there"
    assert prompt.charged == pytest.approx(-len(stays) * (layers - focus.layer) / layers)
    exact = torch.allclose(tiny.engine.logits(hidden)[0], expected.logits[-1], atol=1e-4, rtol=1e-4)
    assert exact == (focus.layer == layers)


@pytest.mark.parametrize("turn", [10, 300])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_deviation_is_the_squared_difference_to_a_full_recompute(
    cache: ChunkCache, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, layers: int, turn: int
) -> None:
    monkeypatch.setattr(forward, "PREFILL_ROWS", turn)
    prefilled = prefill_prompt(cache, [SYSTEM, *reversed(DOCUMENT), QUESTION])
    prompt, layer = linked(cache, prefilled), layers - 1
    placed_k, placed_v = prefilled.buffer.k[layer].clone(), prefilled.buffer.v[layer].clone()
    expected, n = stock(tiny.model, prompt.ids), prompt.question
    squared = (expected.k[layer, :, :n] - placed_k[:, :n]).pow(2) + (expected.v[layer, :, :n] - placed_v[:, :n]).pow(2)
    deviation = prompt.deviation(layers)
    np.testing.assert_allclose(deviation, squared.sum((0, 2)).numpy(), rtol=1e-3, atol=1e-5)
    assert (deviation.max() > 0.1) == (layers > 1), "layer 0 has no context"
    assert prompt.charged == pytest.approx(n * layers / 3)


def test_attention_reads_the_buffer_itself(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[int] = set()
    original = F.scaled_dot_product_attention

    def noting(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **settings: object) -> torch.Tensor:
        read.update((k.untyped_storage().data_ptr(), v.untyped_storage().data_ptr()))
        return original(q, k, v, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", noting)
    generation = cache.generate([SYSTEM, *reversed(DOCUMENT), QUESTION], max_tokens=3, linker="first_tokens:k=5")
    list(generation)
    prefilled = prefill_prompt(cache, [SYSTEM, *reversed(DOCUMENT), QUESTION], linker="query")
    buffers = {prefilled.buffer.k.untyped_storage().data_ptr(), prefilled.buffer.v.untyped_storage().data_ptr()}
    assert buffers <= read
    assert len(read) <= 4, "of two prompts, two buffers each"


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=2"])
def test_linking_takes_one_prompts_kv_and_little_more(linker: str) -> None:
    # 12 layers, so that one layer's keys, and one chunk's, are small beside the whole.
    cache = filled(make_tiny(num_hidden_layers=12), scale=4)
    chunks = make_chunks(*(len(chunk) * 4 for chunk in DOCUMENT))
    segments = [SYSTEM, *reversed(chunks), QUESTION]
    kv = sum(map(len, segments)) * cache.engine.spec.token_bytes
    kept = cache.engine.buffer(1)  # the memory that filling the cache left: this prompt's is to be counted

    def prefill() -> None:
        assert prefill_prompt(cache, segments, linker=linker).report.computed == 0

    assert kv <= peak_bytes(prefill) < 1.5 * kv
    assert kept.k.shape[2] == 1
