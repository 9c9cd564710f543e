"""Two ranks of which one has a slow disk compute and load the same pieces, as the scheduler's side decides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import link_params
from ragcache.loader.sequential import SequentialLoader
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Segment
from tests.equivalence.vllm.served import Server, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
SKEWED = "tests.equivalence.vllm.skewed.SkewedConnector"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("skewed")
    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    # What the prefix cache held would be neither computed nor loaded.
    flags = {"skip-tokenizer-init": True, "tensor-parallel-size": 2, "no-enable-prefix-caching": True}
    with serving(
        folder / "model", folder, connector=SKEWED, linking={"link_when": "sooner", "ram_bytes": 0}, **flags
    ) as started:
        yield started


@pytest.fixture(scope="module")
def filled(server: Server) -> ChunkCache:
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    store = open_store(server.store, 0, None, "raw")
    cache = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    list(cache.ingest(SYSTEM, DOCUMENT))
    return cache


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2"])
def test_ranks_meet_at_one_point(server: Server, filled: ChunkCache, linker: str) -> None:
    """Where it is, the disks decide; the tokens are those of computing that front and loading the rest."""
    points = set[tuple[bool, int]]()
    for order in islice(permutations(DOCUMENT), 0, 720, 90):
        segments: list[Segment] = [SYSTEM, *order, QUESTION]
        tokens, told = server.answer(segments, link_params(segments, linker))
        tiers = [chunk["tier"] for chunk in told["chunks"]]
        front = next((place for place, tier in enumerate(tiers) if tier != COMPUTED), len(tiers))
        points.add((told["system_tier"] == COMPUTED, front))
        if COMPUTED in tiers[front:]:
            continue  # one that was overdue behind what had come
        loader = SequentialLoader(front=front, system=told["system_tier"] == COMPUTED)
        plain = ChunkCache(filled.engine, filled.store, "naive", context_chunks=2, keep_missed=False, loader=loader)
        theirs = plain.generate(segments, max_tokens=12, linker=linker)
        assert tokens == list(theirs)
        assert [told[one] for one in ("reused", "repaired")] == [theirs.report.reused, theirs.report.repaired]
    # Where it was depends on the moment; that both sides had a part does not.
    assert any(system for system, _ in points), points
    assert any(front < len(DOCUMENT) for _, front in points), points
