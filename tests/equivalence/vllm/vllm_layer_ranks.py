"""Two ranks whose layers come at other times compute over them in the same passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations
from pathlib import Path

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import link_params
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Segment
from tests.equivalence.vllm.served import Server, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
LAYERED = "tests.equivalence.vllm.skewed.LayeredConnector"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("layered")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    flags = {"skip-tokenizer-init": True, "tensor-parallel-size": 2, "no-enable-prefix-caching": True}
    linking = {"link_when": "always", "loader": "layerwise", "ram_bytes": 0}
    with serving(folder / "model", folder, connector=LAYERED, linking=linking, **flags) as started:
        yield started


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2"])
def test_both_answer_as_one(server: Server, linker: str) -> None:
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    store = open_store(server.store, ram_bytes=0, codec="raw")
    cache = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    list(cache.ingest(SYSTEM, DOCUMENT))
    for order in islice(permutations(DOCUMENT), 0, 720, 120):
        segments: list[Segment] = [SYSTEM, *order, QUESTION]
        tokens, told = server.answer(segments, link_params(segments, linker))
        theirs = cache.generate(segments, max_tokens=12, linker=linker)
        assert tokens == list(theirs)
        assert [told[one] for one in ("reused", "repaired")] == [theirs.report.reused, theirs.report.repaired]
        assert COMPUTED not in {chunk["tier"] for chunk in told["chunks"]}
        assert not told["incidents"]
