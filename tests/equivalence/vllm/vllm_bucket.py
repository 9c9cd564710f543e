"""vLLM's own server over a bucket that another machine has filled: a real S3 server, 50 ms away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import capture_params, link_params
from ragcache.store import open_store
from ragcache.store.remote.store import SharedStore
from ragcache.types import Segment, VariantKey
from tests.buckets import Proxy, S3Bucket, new_bucket, proxied, s3_server
from tests.equivalence.vllm.served import PATIENCE_S, Server, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny
from tests.waiting import wait_until

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]
# What the prefix cache held would be linked no more, and ask no store.
FLAGS = {"skip-tokenizer-init": True, "no-enable-prefix-caching": True}


@pytest.fixture(scope="module")
def network() -> Iterator[Proxy]:
    with s3_server() as port, proxied(port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def bucket(network: Proxy) -> Iterator[S3Bucket]:
    made = new_bucket(network._server, network.port)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def elsewhere(model: Path, bucket: S3Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChunkCache]:
    """The machine that has ingested the document, by the torch engine."""
    engine = TorchEngine.from_folder(model, torch.float32, torch.device("cpu"))
    store = open_store(tmp_path_factory.mktemp("elsewhere"), ram_bytes=0, codec="raw", remote=bucket.url)
    assert isinstance(store, SharedStore)
    cache = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    list(cache.ingest(SYSTEM, DOCUMENT))
    assert store.settle(PATIENCE_S), "it waits still"
    yield cache
    store.close()


def linked(server: Server, linker: str) -> tuple[list[int], dict[str, Any]]:
    """The answer once the bucket has told all that it has: on a busy machine a prompt may not wait for that."""
    answers: list[tuple[list[int], dict[str, Any]]] = []

    def all_found() -> bool:
        answers.append(server.answer(PROMPT, link_params(PROMPT, linker)))
        return all(chunk["tier"] != "computed" for chunk in answers[-1][1]["chunks"])

    wait_until(all_found, PATIENCE_S, lambda: answers[-1:])
    return answers[-1]


@pytest.fixture(scope="module")
def server(model: Path, bucket: S3Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    linking = {"remote": bucket.url, "ram_bytes": 0, "captures": True}
    with serving(model, tmp_path_factory.mktemp("served"), linking=linking, **FLAGS) as started:
        yield started


def test_what_another_machine_has_computed_is_linked(server: Server, elsewhere: ChunkCache) -> None:
    for linker in ("naive", "auto"):
        theirs = elsewhere.generate(PROMPT, max_tokens=12, linker=linker)
        tokens, told = linked(server, linker)
        assert tokens == list(theirs)
        assert [told[one] for one in ("reused", "repaired")] == [theirs.report.reused, theirs.report.repaired]
    counted = {name: value for name, value in server.metrics().items() if name.startswith("ragcache:chunks_total")}
    assert sum(value for name, value in counted.items() if 'kind="bucket"' in name) > 0, counted
    wait_until(lambda: _tiers(server) == {"disk"}, PATIENCE_S, lambda: _tiers(server))


def _tiers(server: Server) -> set[str]:
    """Of a prompt's chunks: the disk is the bucket's cache."""
    return {chunk["tier"] for chunk in linked(server, "naive")[1]["chunks"]}


def test_what_it_captures_goes_there(server: Server, elsewhere: ChunkCache, network: Proxy) -> None:
    fingerprint, new = elsewhere.engine.spec.fingerprint, make_chunks(45, seed=11)[0]
    system = VariantKey(fingerprint, "", (), SYSTEM.hash)
    key = VariantKey(fingerprint, SYSTEM.hash, (), new.hash)
    for segments, keys in (([SYSTEM], [system]), ([SYSTEM, new], [system, key])):
        _, told = server.answer(segments, capture_params(segments, keys), 1)
        assert told["incidents"] == []
    wait_until(lambda: _has(elsewhere.store, key), PATIENCE_S, lambda: network.requests[-20:])


def _has(store: Any, key: VariantKey) -> bool:
    """Whether the other machine finds it."""
    store._catalog.forget(key.family)
    return any(info.key == key for info in store.variants(key.family))


def test_without_the_bucket_it_answers(server: Server, elsewhere: ChunkCache, network: Proxy) -> None:
    prompt: list[Segment] = [SYSTEM, *make_chunks(37, 41, seed=12), QUESTION]
    network.fault = lambda method, path: "reset"
    try:
        tokens, told = server.answer(prompt, link_params(prompt, "naive"))
    finally:
        network.fault = lambda method, path: ""
    assert tokens == list(elsewhere.generate(prompt, max_tokens=12, linker="full"))
    assert {chunk["tier"] for chunk in told["chunks"]} == {"computed"}
