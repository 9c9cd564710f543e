"""Our engine over vLLM's own server: it captures, links and streams there as it does in this process."""

from __future__ import annotations

import http.server
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.fingerprint import Digests
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import KEY, report_params
from ragcache.engine.vllm.served import ServedVllmEngine
from ragcache.engine.vllm.server import VllmServer
from ragcache.errors import ConfigError, ModelError, PromptError
from ragcache.sampling import Sampling
from ragcache.server_address import ServerAddress
from ragcache.store import KVStore, open_store
from ragcache.types import Segment
from tests.equivalence.vllm.served import PATIENCE_S, Server, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny
from tests.waiting import wait_until

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 1)), QUESTION]
TOKENS = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    with serving(folder / "model", folder, linking={"captures": True}, **{"skip-tokenizer-init": True}) as started:
        yield started


@pytest.fixture(scope="module")
def store(server: Server) -> KVStore:
    return open_store(server.store, ram_bytes=0, codec="raw")


@pytest.fixture(scope="module")
def engine(server: Server, store: KVStore) -> Iterator[ServedVllmEngine]:
    found = VllmServer(ServerAddress(False, "127.0.0.1", server.port))
    made = ServedVllmEngine(found, server.model, torch.float32, store, Digests(None))
    yield made
    made.close()


@pytest.fixture(scope="module")
def cache(engine: ServedVllmEngine, store: KVStore) -> ChunkCache:
    """Its document is captured by the server."""
    made = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    assert [variant.ids for variant in made.ingest(SYSTEM, DOCUMENT)] == [chunk.ids for chunk in DOCUMENT]
    return made


@pytest.fixture(scope="module")
def own(server: Server, cache: ChunkCache) -> ChunkCache:
    """The torch engine over what the server has captured."""
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    return ChunkCache(
        engine, open_store(server.store, ram_bytes=0, codec="raw"), "naive", context_chunks=2, keep_missed=False
    )


def test_it_is_the_model_of_the_folder(engine: ServedVllmEngine, own: ChunkCache) -> None:
    ours, theirs = engine.spec, own.engine.spec
    assert (ours.fingerprint, ours.form, ours.vocabulary) == (theirs.fingerprint, theirs.form, theirs.vocabulary)
    assert (ours.eos, ours.dtype) == (theirs.eos, theirs.dtype)


@pytest.mark.parametrize("linker", ["naive", "boundary", "auto", "full"])
def test_answers_are_those_of_torch(cache: ChunkCache, own: ChunkCache, linker: str) -> None:
    stream, theirs = (one.generate(PROMPT, max_tokens=TOKENS, linker=linker) for one in (cache, own))
    assert list(stream) == list(theirs) == stream.tokens
    counts = ("reused", "repaired", "computed", "prompt_tokens")
    assert [getattr(stream.report, count) for count in counts] == [getattr(theirs.report, count) for count in counts]
    assert stream.report.incidents == []
    assert stream.finish_reason == theirs.finish_reason
    assert stream.report.ttft_s > 0


def test_logprobs_are_those_of_torch(cache: ChunkCache, own: ChunkCache) -> None:
    asked = Sampling(logprobs=3, logit_bias=((5, 1.5),))
    streams = [one.generate(PROMPT, max_tokens=4, linker="full", sampling=asked) for one in (cache, own)]
    assert list(streams[0]) == list(streams[1])
    for ours, theirs in zip(streams[0].logprobs, streams[1].logprobs, strict=True):
        assert ours.token == theirs.token
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-3)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]


def test_what_an_answer_lacked_is_captured_by_the_server(engine: ServedVllmEngine, store: KVStore) -> None:
    cache = ChunkCache(engine, store, "naive", context_chunks=2)
    chunk = make_chunks(44, seed=21)[0]
    segments = [SYSTEM, chunk, QUESTION]
    list(first := cache.generate(segments, max_tokens=3))
    list(second := cache.generate(segments, max_tokens=3))
    assert (first.report.reused, second.report.reused) == (0, len(chunk))


def test_what_an_answer_lacked_that_was_enough_early_is_captured_too(engine: ServedVllmEngine, store: KVStore) -> None:
    cache = ChunkCache(engine, store, "naive", context_chunks=2)
    chunk = make_chunks(47, seed=22)[0]
    segments = [SYSTEM, chunk, QUESTION]
    first = cache.generate(segments, max_tokens=250)
    assert len(list(islice(first, 2))) == 2
    first.enough()
    assert list(first) == []
    assert (first.finish_reason, first.report.incidents) == ("stop", [])
    list(second := cache.generate(segments, max_tokens=3))
    assert (first.report.reused, second.report.reused) == (0, len(chunk))


def test_whoever_leaves_frees_it(server: Server, cache: ChunkCache) -> None:
    for leave in ("close", "cancel"):
        stream = cache.generate(PROMPT, max_tokens=250)
        list(islice(stream, 2))
        getattr(stream, leave)()
        assert len(list(stream)) < 240
        assert stream.finish_reason == "cancelled"
    gauges = ("vllm:num_requests_running", "vllm:kv_cache_usage_perc")
    wait_until(lambda: not any(map(server.metric, gauges)), PATIENCE_S, server.metrics)


def test_what_it_does_not_take_is_told(cache: ChunkCache, engine: ServedVllmEngine) -> None:
    with pytest.raises(PromptError):
        cache.generate(PROMPT, max_tokens=5000)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.submit([1], engine.sampling(1, {"kv_transfer_params": {KEY: {}}}, top_p=7.0), told.put)
    refusal = told.get(timeout=PATIENCE_S)
    assert isinstance(refusal, ConfigError)
    assert "top_p" in str(refusal)


def test_a_report_is_told_once(server: Server, cache: ChunkCache) -> None:
    _, told = server.answer([QUESTION], report_params("0" * 32), 1)
    assert "no report" in told["incidents"][0]
    _, told = server.answer([QUESTION], report_params("nobody's"), 1)
    assert "not linked" in told["incidents"][0]


def test_another_model_is_noticed_by_what_it_captures(server: Server, store: KVStore, tmp_path: Path) -> None:
    make_tiny(head_dim=32, hidden_size=128, seed=5).model.save_pretrained(tmp_path / "other")
    address = VllmServer(ServerAddress(False, "127.0.0.1", server.port))
    other = ServedVllmEngine(address, tmp_path / "other", torch.float32, store, Digests(None))
    with pytest.raises(ModelError, match="the same model folder"):
        other.capture([], make_system(33))


@contextmanager
def saying(text: bytes) -> Iterator[VllmServer]:
    """A server that answers everything with this, and hangs up."""

    class Strange(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *told: object) -> None:
            pass

    strange = http.server.HTTPServer(("127.0.0.1", 0), Strange)
    threading.Thread(target=strange.serve_forever, daemon=True).start()
    try:
        yield VllmServer(ServerAddress(False, "127.0.0.1", strange.server_port))
    finally:
        strange.shutdown()
        strange.server_close()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nothing of HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"data": [1]}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"da',
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_strange_server_is_told_of(server: Server, store: KVStore, text: bytes) -> None:
    with saying(text) as strange, pytest.raises((ModelError, ConfigError), match=r"server"):
        ServedVllmEngine(strange, server.model, torch.float32, store, Digests(None))


def test_nobody_there_is_told() -> None:
    with pytest.raises(ModelError, match="does not answer"):
        VllmServer(ServerAddress(False, "127.0.0.1", 1)).models()
