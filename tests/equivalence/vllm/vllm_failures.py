"""A store that hangs, and a paged cache that is too small: the right answer all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ragcache.report import COMPUTED
from ragcache.store.base import OpenEntry
from ragcache.store.findings import Flaw
from ragcache.store.ram import RamTier
from ragcache.types import Segment, VariantInfo, VariantKey
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]


class SlowStore(RamTier):
    """As a disk that hangs: some entries come when `gate` opens."""

    def __init__(self) -> None:
        super().__init__(None)
        self.gate = threading.Event()
        self.slow: set[str] = set()
        self.searching: threading.Event | None = None  # opens when the folder may be searched

    def delete_family(self, chunk: str) -> None:
        for key in [one.variant.key for one in self._residents.values() if one.variant.key.chunk == chunk]:
            self.delete(key)

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        return None

    def open(self, key: VariantKey) -> OpenEntry | None:
        if key.chunk in self.slow:
            self.gate.wait()
        return super().open(key)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        if self.searching is not None:
            self.searching.wait()
        return super().variants(family, flaws)


@pytest.fixture(scope="module")
def slow() -> SlowStore:
    return SlowStore()


@pytest.fixture
def small(opened: Pair) -> Pair:
    """Whose prefix cache has nothing that was computed plainly: a link would go on behind it."""
    drain(opened.engine)
    opened.engine.forget_prefixes()
    return opened


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair, slow: SlowStore) -> Iterator[Pair]:
    """Room for three prompts of 11 blocks, but not for their answers too."""
    options = {"block_size": 32, "kv_cache_memory_bytes": 40 * 32 * 1536, "max_num_batched_tokens": 256}
    with open_pair(store=slow, **options) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        yield pair
        slow.gate.set()  # or its reader would wait for ever


def test_preempted_requests_end_with_the_same_answer(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    before, preempted = free_blocks(small.engine), []
    scheduler = small.engine._scheduler
    plain = scheduler._preempt_request

    def preempt(request: Any, *args: Any, **kwargs: Any) -> Any:
        preempted.append(request.request_id)
        return plain(request, *args, **kwargs)

    monkeypatch.setattr(scheduler, "_preempt_request", preempt)
    asked = [
        ([SYSTEM, *DOCUMENT[place:], *DOCUMENT[:place], QUESTION], linker)
        for place, linker in enumerate(("naive", "boundary", "auto", "full", "query", "fast"))
    ]
    with ThreadPoolExecutor(len(asked)) as readers:
        answers = list(readers.map(lambda one: list(small.vllm.generate(one[0], max_tokens=90, linker=one[1])), asked))
    for (segments, linker), tokens in zip(asked, answers, strict=True):
        assert tokens == list(small.torch.generate(segments, max_tokens=90, linker=linker)), linker
    assert preempted, "or this shows nothing"
    drain(small.engine)
    assert free_blocks(small.engine) == before
    small.engine.check_integrity()


def test_a_slow_entry_is_computed_and_delays_nobody(
    small: Pair, slow: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small.engine._worker.loader._threads, "limit_s", 0.3)
    slow.slow = {DOCUMENT[0].hash}
    late = small.vllm.generate(PROMPT, max_tokens=12)
    others = [DOCUMENT[2], DOCUMENT[4]]
    beside = small.vllm.generate([SYSTEM, *others, QUESTION], max_tokens=12)
    assert list(beside) == list(small.torch.generate([SYSTEM, *others, QUESTION], max_tokens=12))
    tokens = list(late)
    slow.slow = set()
    assert [chunk.tier for chunk in late.report.chunks] == ["ram", COMPUTED, "ram", "ram"]
    assert "not loaded in time" in late.report.incidents[0]
    assert len(tokens) == 12
    slow.delete_family(DOCUMENT[0].hash)
    assert tokens == list(small.torch.generate(PROMPT, max_tokens=12)), "as if the entry had never been there"


def test_a_folder_that_is_slow_to_search_delays_nobody_else(small: Pair, slow: SlowStore) -> None:
    """And who waits for it is linked once the plan is there, with nothing else to step for."""
    expected = list(small.torch.generate(PROMPT, max_tokens=12))
    others = [SYSTEM, DOCUMENT[2], DOCUMENT[4], QUESTION]
    beside = list(small.torch.generate(others, max_tokens=12, linker="full"))
    slow.searching = threading.Event()
    late = small.vllm.generate(PROMPT, max_tokens=12)
    assert list(small.vllm.generate(others, max_tokens=12, linker="full")) == beside
    slow.searching.set()
    assert list(late) == expected
    assert late.report.incidents == []
    assert late.report.reused > 0
    slow.searching = None


def test_a_folder_that_cannot_be_searched_costs_the_link(
    small: Pair, slow: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else runs: the engine steps until the time is over."""
    monkeypatch.setattr(small.engine._connector.scheduler._plans._threads, "limit_s", 0.3)
    expected = list(small.torch.generate(PROMPT, max_tokens=12, linker="full"))
    slow.searching = threading.Event()
    generation = small.vllm.generate(PROMPT, max_tokens=12)
    tokens = list(generation)
    slow.searching.set()
    slow.searching = None
    assert tokens == expected
    assert "not searched in time" in generation.report.incidents[0]
    drain(small.engine)
    small.engine.check_integrity()
