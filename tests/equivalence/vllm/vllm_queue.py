"""What waits in vLLM's queue is read meanwhile, and nothing of it stays where it goes away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ragcache.engine.vllm.orders import Load
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Segment
from tests.cold_prompts import LIMIT_S, Gate
from tests.equivalence.vllm.conftest import TOKENS, OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, left_as_found
from tests.waiting import wait_until

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
MIXED: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]
ORDINARY: list[Segment] = [make_question(20)]
PIECES = 5


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One request at a time."""
    store = open_store(tmp_path_factory.mktemp("queue"), ram_bytes=0, codec="raw")
    with open_pair(store=store, block_size=32, max_num_seqs=1) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        yield pair


@pytest.fixture
def pair(opened: Pair) -> Iterator[Pair]:
    with left_as_found(opened.engine):
        yield opened


@pytest.fixture
def gate(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Before the disk."""
    made, threads = Gate(1000), DiskThreads(1, "test-queue", LIMIT_S)
    monkeypatch.setattr(pair.engine._worker, "loader", CakeLoader(threads, pace=made, ahead=16, claims=False))
    yield made
    threads.close()


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2"])
def test_it_is_read_by_the_time_that_it_has_its_blocks(
    pair: Pair, gate: Gate, linker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list(pair.torch.generate(MIXED, max_tokens=8, linker=linker))
    worker, read = pair.engine._worker, list[int]()
    start = worker._start

    def started(load: Load) -> Any:
        read.append(gate.reads)
        return start(load)

    monkeypatch.setattr(worker, "_start", started)
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(pair.vllm.generate, MIXED, max_tokens=8, linker=linker)
        wait_until(lambda: gate.reads == PIECES, LIMIT_S)
        before.close()
        stream = answer.result()
        assert list(stream) == expected
    assert read == [PIECES], "all before, and nothing twice"
    assert gate.reads == PIECES
    assert COMPUTED not in {chunk.tier for chunk in stream.report.chunks}
    assert not stream.report.incidents


def test_what_the_prefix_cache_has_of_it_is_no_matter(pair: Pair, gate: Gate) -> None:
    """As of the System segment, once anybody has asked."""
    other = [SYSTEM, DOCUMENT[0], DOCUMENT[4], QUESTION]
    assert len(list(pair.vllm.generate(other, max_tokens=4, linker="naive"))) == 4
    drain(pair.engine)
    expected, reads = list(pair.torch.generate(MIXED, max_tokens=8, linker="naive")), gate.reads
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    waiting = pair.vllm.generate(MIXED, max_tokens=8, linker="naive")
    wait_until(lambda: gate.reads == reads + PIECES, LIMIT_S)
    before.close()
    assert list(waiting) == expected
    assert gate.reads == reads + PIECES


def test_who_goes_away_leaves_nothing(pair: Pair, gate: Gate) -> None:
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    waiting = pair.vllm.generate(MIXED, max_tokens=8, linker="naive")
    wait_until(lambda: gate.reads > 0, LIMIT_S)
    waiting.close()
    before.close()


def test_reading_that_breaks_is_one_request_s_alone(pair: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(pair.torch.generate(MIXED, max_tokens=8, linker="full"))
    broken = threading.Event()

    def ahead(*given: Any, **named: Any) -> Any:
        broken.set()
        raise MemoryError

    monkeypatch.setattr(pair.engine._worker.loader, "ahead", ahead)
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    waiting = pair.vllm.generate(MIXED, max_tokens=8, linker="naive")
    assert broken.wait(LIMIT_S)
    before.close()
    assert list(waiting) == expected
    assert any("not linked" in told for told in waiting.report.incidents)


def test_a_load_that_breaks_leaves_nothing(pair: Pair, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no memory left for its room."""
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    waiting = pair.vllm.generate(MIXED, max_tokens=8, linker="naive")
    wait_until(lambda: gate.reads == PIECES, LIMIT_S)

    def room(positions: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(pair.engine._worker.spans, "room", room)
    before.close()
    assert len(list(waiting)) == 8
    assert any("not linked" in told for told in waiting.report.incidents)


def test_a_disk_that_stops_meanwhile_costs_the_link_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for from when the first piece is read, not from when the request has its blocks."""
    gate, threads = Gate(0), DiskThreads(1, "test-queue", 0.2)
    monkeypatch.setattr(pair.engine._worker, "loader", CakeLoader(threads, pace=gate, ahead=16, claims=False))
    expected = list(pair.torch.generate(MIXED, max_tokens=8, linker="full"))
    before = pair.vllm.generate(ORDINARY, max_tokens=TOKENS - 30, linker="naive")
    next(iter(before))
    try:
        waiting = pair.vllm.generate(MIXED, max_tokens=8, linker="naive")
        wait_until(gate.shut.is_set, LIMIT_S)
        before.close()
        assert list(waiting) == expected
        assert waiting.report.reused == 0 and waiting.report.incidents
    finally:
        gate.opened.set()
        threads.close()
