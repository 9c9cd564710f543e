"""Two tensor-parallel ranks, each a process with half of the heads, against the torch engine."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import capture_params, link_params
from ragcache.store import open_store
from ragcache.types import Segment, Text, VariantKey
from tests.equivalence.vllm.served import Server, check_alike, serving
from tests.tiny import draw, make_chunks, make_question, make_system, make_tiny

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
STRANGER = make_chunks(30, seed=9)[0]
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ranks")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    flags = {"skip-tokenizer-init": True, "tensor-parallel-size": 2}
    with serving(folder / "model", folder, linking={"captures": True}, **flags) as started:
        yield started


@pytest.fixture(scope="module")
def cache(server: Server) -> ChunkCache:
    """The torch engine, which fills the folder that both ranks read."""
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    store = open_store(server.store, ram_bytes=0, codec="raw")
    filled = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    list(filled.ingest(SYSTEM, DOCUMENT))
    return filled


def test_there_are_two(server: Server) -> None:
    workers = {"".join(child.cmdline()) for child in psutil.Process(server.process.pid).children(recursive=True)}
    assert workers >= {"VLLM::Worker_TP0", "VLLM::Worker_TP1"}


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=4", "fast", "auto", "query", "full"])
def test_ranks_link_as_the_torch_engine_does(server: Server, cache: ChunkCache, linker: str) -> None:
    check_alike(server, cache, PROMPT, linker)


def test_what_is_missing_is_computed_by_both(server: Server, cache: ChunkCache) -> None:
    segments = [SYSTEM, DOCUMENT[2], STRANGER, Text(draw(6, 50)), DOCUMENT[4], QUESTION]
    for linker in ("naive", "auto"):
        tokens, _ = server.answer(segments, link_params(segments, linker))
        assert tokens == list(cache.generate(segments, max_tokens=12, linker=linker))


def test_a_capture_is_refused(server: Server, cache: ChunkCache) -> None:
    key = VariantKey(cache.engine.spec.fingerprint, "", (), SYSTEM.hash)
    _, told = server.answer([SYSTEM], capture_params([SYSTEM], [key]), 1)
    assert "capture with one rank" in told["incidents"][0]
