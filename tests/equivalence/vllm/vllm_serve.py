"""vLLM's own server with our connector, as users start it: captured, linked, streamed and measured over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ragcache.address import history_of
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import KEY, capture_params, link_params
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, Text, VariantKey
from tests.equivalence.vllm.served import PATIENCE_S, Server, check_alike, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny
from tests.waiting import wait_until

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    with serving(folder / "model", folder, linking={"captures": True}, **{"skip-tokenizer-init": True}) as started:
        yield started


@pytest.fixture(scope="module")
def cache(server: Server) -> ChunkCache:
    """The torch engine over the folder that the server has written."""
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    system = VariantKey(engine.spec.fingerprint, "", (), SYSTEM.hash)
    server.answer([SYSTEM], capture_params([SYSTEM], [system]), 1)
    done: list[tuple[VariantKey, Chunk]] = []
    for chunk in DOCUMENT:
        keys, context = [key for key, _ in done[-2:]], [before for _, before in done[-2:]]
        hashes = tuple(before.hash for before in context)
        key = VariantKey(system.fingerprint, SYSTEM.hash, hashes, chunk.hash, history_of(keys))
        segments = [SYSTEM, *context, chunk]
        _, told = server.answer(segments, capture_params(segments, [system, *keys, key]), 1)
        assert told["incidents"] == []
        done.append((key, chunk))
    return ChunkCache(
        engine, open_store(server.store, ram_bytes=0, codec="raw"), "naive", context_chunks=2, keep_missed=False
    )


@pytest.mark.parametrize("linker", ["naive", "boundary", "fast", "auto", "query", "full"])
def test_over_http_as_in_the_torch_engine(server: Server, cache: ChunkCache, linker: str) -> None:
    check_alike(server, cache, PROMPT, linker)


def test_a_request_that_asks_wrongly_is_answered_all_the_same(server: Server, cache: ChunkCache) -> None:
    tokens, told = server.answer(PROMPT, {KEY: {"segments": []}})
    assert tokens == list(cache.generate(PROMPT, max_tokens=12, linker="full"))
    assert "not linked" in told["incidents"][0]


def test_nobody_stores_kv_under_an_address_that_it_has_not(server: Server, cache: ChunkCache) -> None:
    """Neither behind nothing what is named as behind System and a chunk, nor by another System segment's context."""
    first, second = DOCUMENT[:2]
    system = VariantKey(cache.engine.spec.fingerprint, "", (), SYSTEM.hash)
    other = make_system(30)
    lead = VariantKey(system.fingerprint, SYSTEM.hash, (), first.hash)
    strange = VariantKey(system.fingerprint, other.hash, (), first.hash)
    stranger = make_chunks(33, seed=8)[0]
    false = VariantKey(system.fingerprint, SYSTEM.hash, (first.hash,), stranger.hash)
    kept = cache.store.stats()[-1].entries
    for segments, keys in (
        ([stranger], [false]),
        ([SYSTEM, stranger], [system, false]),
        ([SYSTEM, first, stranger], [system, strange, false]),
        ([SYSTEM, second, stranger], [system, lead, false]),
        (
            [SYSTEM, first, Text(stranger.ids)],
            [system, lead, false],
        ),
    ):
        _, told = server.answer(segments, capture_params(segments, keys), 1)
        assert "not linked" in told["incidents"][0]
    assert cache.store.variants(false.family) == []
    assert cache.store.stats()[-1].entries == kept


def test_the_metrics_tell_it(server: Server, cache: ChunkCache) -> None:
    names = ("ragcache:requests_total", "ragcache:tokens_total", "ragcache:chunks_total")
    before = [server.metric(name) for name in names]
    server.answer(PROMPT, link_params(PROMPT, "boundary"))
    after = [server.metric(name) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, sum(map(len, PROMPT[1:-1])), 4]


def test_they_tell_what_our_own_code_takes(server: Server, cache: ChunkCache) -> None:
    def told(kind: str) -> float:
        lines = server.metrics().items()
        return sum(value for line, value in lines if line.startswith("ragcache:own_total{") and f'"{kind}"' in line)

    before = {kind: told(kind) for kind in ("scheduler", "worker", "steps")}

    def took(kind: str) -> float:
        server.answer(PROMPT, link_params(PROMPT, "boundary"))
        return told(kind) - before[kind]

    for kind in before:
        wait_until(lambda kind=kind: took(kind) > 0.0, PATIENCE_S, server.metrics)  # type: ignore[misc]
    assert took("scheduler") + took("worker") < took("steps")


def test_a_client_that_vanishes_leaves_nothing_behind(server: Server, cache: ChunkCache) -> None:
    for _ in range(5):
        connection, response = server.complete(PROMPT, link_params(PROMPT, "auto"), 200, stream=True)
        assert response.readline().startswith(b"data: ")
        response.close()
        connection.close()
    gauges = ("vllm:num_requests_running", "vllm:kv_cache_usage_perc")
    wait_until(lambda: not any(map(server.metric, gauges)), PATIENCE_S, server.metrics)
    tokens, _ = server.answer(PROMPT, link_params(PROMPT, "auto"))
    assert tokens == list(cache.generate(PROMPT, max_tokens=12, linker="auto"))
