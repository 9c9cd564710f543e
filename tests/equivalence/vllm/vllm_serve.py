"""vLLM's own server with our connector, as users start it: captured, linked, streamed and measured over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.asking import KEY, capture_params, link_params
from ragcache.engine.vllm.checks import WORKER
from ragcache.kvgen import history_of
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, VariantKey
from tests.tiny import make_chunks, make_question, make_system, make_tiny

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]
PATIENCE_S = 200.0


class Server:
    """A process of its own, with a worker process of its own."""

    def __init__(self, model: Path, store: Path, log: Path):
        self.model, self.store, self.log = model, store, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        transfer = {
            "kv_connector": "RagcacheConnector",
            "kv_connector_module_path": "ragcache.engine.vllm.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"store": str(store), "codec": "raw"},
        }
        flags = {
            "model": model, "port": self.port, "dtype": "float32", "max-model-len": 512, "block-size": 32,
            "kv-cache-memory-bytes": 64_000_000, "worker-cls": WORKER, "kv-transfer-config": json.dumps(transfer),
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--enforce-eager",
            "--skip-tokenizer-init",
        ]
        command += [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(self.log.read_text()[-4000:])
        try:
            return self.get("/health").status == 200
        except ConnectionError:
            return False

    def get(self, path: str) -> http.client.HTTPResponse:
        return self.request("GET", path, None)[1]

    def request(self, method: str, path: str, body: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection, connection.getresponse()

    def complete(
        self, segments: Sequence[Segment], params: Any, tokens: int, **more: Any
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        body = {
            "model": str(self.model), "prompt": [token for segment in segments for token in segment.ids],
            "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "detokenize": False, "return_token_ids": True,
            "kv_transfer_params": params, **more,
        }  # fmt: skip
        return self.request("POST", "/v1/completions", body)

    def answer(self, segments: Sequence[Segment], params: Any, tokens: int = 12) -> tuple[list[int], dict[str, Any]]:
        _, response = self.complete(segments, params, tokens)
        assert response.status == 200, response.read()
        told = json.load(response)
        return told["choices"][0]["token_ids"], told["kv_transfer_params"][KEY]

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics").read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def metric(self, name: str) -> float:
        return sum(value for line, value in self.metrics().items() if line.startswith(name))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    started = Server(folder / "model", folder / "kv", folder / "log")
    try:
        deadline = monotonic() + PATIENCE_S
        while not started.ready():
            assert monotonic() < deadline, started.log.read_text()[-4000:]
        yield started
    finally:
        started.process.terminate()
        started.process.wait()


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
    return ChunkCache(engine, open_store(server.store, 0, None, "raw"), "naive", context_chunks=2, keep_missed=False)


@pytest.mark.parametrize("linker", ["naive", "boundary", "fast", "auto", "query", "full"])
def test_over_http_as_in_the_torch_engine(server: Server, cache: ChunkCache, linker: str) -> None:
    tokens, told = server.answer(PROMPT, link_params(PROMPT, linker))
    theirs = cache.generate(PROMPT, max_tokens=12, linker=linker)
    assert tokens == list(theirs)
    assert (told["part"], told["incidents"]) == (pytest.approx(theirs.report.part), [])


def test_a_request_that_asks_wrongly_is_answered_all_the_same(server: Server, cache: ChunkCache) -> None:
    tokens, told = server.answer(PROMPT, {KEY: {"segments": []}})
    assert tokens == list(cache.generate(PROMPT, max_tokens=12, linker="full"))
    assert "not linked" in told["incidents"][0]


def test_the_metrics_tell_it(server: Server, cache: ChunkCache) -> None:
    names = ("ragcache:requests_total", "ragcache:tokens_total", "ragcache:chunks_total")
    before = [server.metric(name) for name in names]
    server.answer(PROMPT, link_params(PROMPT, "boundary"))
    after = [server.metric(name) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, sum(map(len, PROMPT[1:-1])), 4]


def test_a_client_that_vanishes_leaves_nothing_behind(server: Server, cache: ChunkCache) -> None:
    for _ in range(5):
        connection, response = server.complete(PROMPT, link_params(PROMPT, "auto"), 200, stream=True)
        assert response.readline().startswith(b"data: ")
        response.close()
        connection.close()
    deadline = monotonic() + PATIENCE_S
    while server.metric("vllm:num_requests_running") or server.metric("vllm:kv_cache_usage_perc"):
        assert monotonic() < deadline, server.metrics()
    tokens, _ = server.answer(PROMPT, link_params(PROMPT, "auto"))
    assert tokens == list(cache.generate(PROMPT, max_tokens=12, linker="auto"))
