"""The linked prompt's measurements, and that KV is not copied on the way to attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ragcache.cache import ChunkCache, Prefilled
from ragcache.engine.torch.linked import TorchLinkedPrompt
from ragcache.linking.base import Positions
from ragcache.store import open_store
from ragcache.types import Segment
from tests.tiny import Tiny, make_chunks, make_question, make_system, make_tiny, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(30, 25, 28, 22)
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture
def cache(tiny: Tiny) -> ChunkCache:
    return filled(tiny)


def filled(tiny: Tiny, scale: int = 1) -> ChunkCache:
    cache = ChunkCache(tiny.engine, open_store(None, None, None, "raw"), "naive")
    list(cache.ingest(SYSTEM, make_chunks(*(len(chunk) * scale for chunk in DOCUMENT))))
    return cache


def linked(cache: ChunkCache, prefilled: Prefilled, missing: Positions = NONE) -> TorchLinkedPrompt:
    plan = prefilled.plan
    return TorchLinkedPrompt(cache.engine, prefilled.buffer, plan.ids, plan.question, [], missing)


@pytest.mark.parametrize(("depth", "layers"), [(1.0, 3), (0.67, 2), (0.01, 1)])
def test_the_questions_attention_is_that_of_transformers(
    cache: ChunkCache, tiny: Tiny, depth: float, layers: int
) -> None:
    """Over exact KV, where transformers computes it too."""
    prefilled = cache.prefill([SYSTEM, *DOCUMENT[:3], QUESTION], linker="full")
    prompt = linked(cache, prefilled)
    attention = torch.stack(stock(tiny.model, prompt.ids).attentions)
    expected = attention[:layers, :, prompt.question :, : prompt.question].mean((0, 1))
    np.testing.assert_allclose(prompt.question_attention(depth), expected.numpy(), atol=1e-6)
    assert prompt.charged == pytest.approx(len(QUESTION) * layers / tiny.engine.spec.layers)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_deviation_is_the_squared_difference_to_a_full_recompute(
    cache: ChunkCache, tiny: Tiny, layers: int
) -> None:
    prefilled = cache.prefill([SYSTEM, *reversed(DOCUMENT), QUESTION])
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
    prefilled = cache.prefill([SYSTEM, *reversed(DOCUMENT), QUESTION], linker="query")
    buffers = {prefilled.buffer.k.untyped_storage().data_ptr(), prefilled.buffer.v.untyped_storage().data_ptr()}
    assert buffers <= read
    assert len(read) <= 4, "of two prompts, two buffers each"


def peak(cache: ChunkCache, segments: list[Segment], linker: str) -> int:
    """Bytes that torch held at once beyond those before."""
    settings = {"activities": [torch.profiler.ProfilerActivity.CPU], "profile_memory": True}
    with torch.profiler.profile(**settings) as profiler:  # type: ignore[arg-type]
        prefilled = cache.prefill(segments, linker=linker)
    assert prefilled.report.computed == 0
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    assert changes
    return int(np.cumsum([change for _, change in sorted(changes)]).max())


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=2"])
def test_linking_takes_one_prompts_kv_and_little_more(linker: str) -> None:
    # 12 layers, so that one layer's keys, and one chunk's, are small beside the whole.
    cache = filled(make_tiny(num_hidden_layers=12), scale=4)
    chunks = make_chunks(*(len(chunk) * 4 for chunk in DOCUMENT))
    segments = [SYSTEM, *reversed(chunks), QUESTION]
    kv = sum(map(len, segments)) * cache.engine.spec.token_bytes
    assert kv <= peak(cache, segments, linker) < 1.5 * kv
