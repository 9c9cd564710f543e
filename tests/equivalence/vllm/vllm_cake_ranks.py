"""Two ranks of which one has a slow disk compute and load the same pieces, as the scheduler's side decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, permutations
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import link_params
from ragcache.loader.sequential import SequentialLoader
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment
from tests.equivalence.vllm.served import PATIENCE_S, Server, serving
from tests.tiny import make_chunks, make_question, make_system, make_tiny
from tests.waiting import wait_until

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
CONTEXT = 4096
WAITING, TOKENS = "vllm:num_requests_waiting{", "vllm:generation_tokens_total"
SKEWED = "tests.equivalence.vllm.skewed.SkewedConnector"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("skewed")
    make_tiny(head_dim=32, hidden_size=128, max_position_embeddings=CONTEXT).model.save_pretrained(folder / "model")
    # What the prefix cache held would be neither computed nor loaded.
    flags = {
        "skip-tokenizer-init": True,
        "tensor-parallel-size": 2,
        "no-enable-prefix-caching": True,
        "max-num-seqs": 1,  # others wait
        "max-model-len": CONTEXT,
    }
    with serving(
        folder / "model", folder, connector=SKEWED, linking={"link_when": "sooner", "ram_bytes": 0}, **flags
    ) as started:
        yield started


@pytest.fixture(scope="module")
def filled(server: Server) -> ChunkCache:
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    store = open_store(server.store, ram_bytes=0, codec="raw")
    cache = ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    list(cache.ingest(SYSTEM, DOCUMENT))
    return cache


def prompt_of(chunks: Sequence[Chunk]) -> list[Segment]:
    return [SYSTEM, *chunks, QUESTION]


def check(
    filled: ChunkCache, segments: list[Segment], answer: tuple[list[int], dict[str, Any]], linker: str
) -> tuple[bool, int]:
    """Whether the System segment was computed, and how many of the front's chunks."""
    tokens, told = answer
    tiers = [chunk["tier"] for chunk in told["chunks"]]
    front = next((place for place, tier in enumerate(tiers) if tier != COMPUTED), len(tiers))
    system = told["system_tier"] == COMPUTED
    if COMPUTED not in tiers[front:]:  # none that was overdue behind what had come
        loader = SequentialLoader(front=front, system=system)
        plain = ChunkCache(filled.engine, filled.store, "naive", context_chunks=2, keep_missed=False, loader=loader)
        theirs = plain.generate(segments, max_tokens=12, linker=linker)
        assert tokens == list(theirs)
        assert [told[one] for one in ("reused", "repaired")] == [theirs.report.reused, theirs.report.repaired]
    return system, front


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2"])
def test_ranks_meet_at_one_point(server: Server, filled: ChunkCache, linker: str) -> None:
    """Where it is, the disks decide; the tokens are those of computing that front and loading the rest."""
    prompts = [prompt_of(order) for order in islice(permutations(DOCUMENT), 0, 720, 90)]
    answers = [server.answer(segments, link_params(segments, linker)) for segments in prompts]
    points = {check(filled, *one, linker) for one in zip(prompts, answers, strict=True)}
    # Where it was depends on the moment; that both sides had a part does not.
    assert any(system for system, _ in points), points
    assert any(front < len(DOCUMENT) for _, front in points), points


@pytest.mark.parametrize("linker", ["naive", "auto:ratio=0.2"])
def test_ranks_read_what_waits_for_the_one_place(server: Server, filled: ChunkCache, linker: str) -> None:
    """A burst, and two of it hang up while they wait. The ranks have begun to read the same prompt meanwhile."""
    prompts = [prompt_of(order) for order in islice(permutations(DOCUMENT), 45, 720, 90)]
    before = len(server.log.read_text())
    ordinary, answer = server.complete([make_question(20)], None, CONTEXT - 100, stream=True)
    answer.readline()  # it runs, in the one place
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = pool.map(lambda segments: server.answer(segments, link_params(segments, linker)), prompts)
        bodies = [server.body(segments, link_params(segments, linker), 200, stream=True) for segments in prompts[:2]]
        leaving = [server.sent("POST", "/v1/completions", body) for body in bodies]
        wait_until(lambda: server.metric(WAITING) == len(prompts) + len(leaving), PATIENCE_S)
        for connection in leaving:
            connection.close()
        wait_until(lambda: server.metric(WAITING) == len(prompts), PATIENCE_S)
        steps = server.metric(TOKENS)
        wait_until(lambda: server.metric(TOKENS) > steps + 5, PATIENCE_S)  # in which the next is read
        ordinary.close()
        for one in zip(prompts, answers, strict=True):
            check(filled, *one, linker)
    gauges = ("vllm:num_requests_running", WAITING, "vllm:kv_cache_usage_perc")
    wait_until(lambda: not any(map(server.metric, gauges)), PATIENCE_S, server.metrics)
    told = re.findall(r"rank (\d) had begun to read (\S+)", server.log.read_text()[before:])
    ranks = [{request for rank, request in told if rank == str(number)} for number in range(2)]
    assert ranks[0] == ranks[1]
    assert ranks[0], told
