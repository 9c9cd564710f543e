from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.block_names import LinkName, SharedBlocks
from ragcache.engine.vllm.budget import Budget, LinkSettings
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.orders import Answers, Loaded, Orders, Probed, PromptRows
from ragcache.engine.vllm.plans import Stepping
from ragcache.engine.vllm.requests import link_params
from ragcache.loader import PieceLoaded, SegmentPiece
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment
from tests.tiny import Tiny, make_chunks, make_question, make_system
from tests.vllm_state import is_waiting

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25)
PROMPT: list[Segment] = [SYSTEM, DOCUMENT[3], DOCUMENT[0], DOCUMENT[2], QUESTION]
LAYERS = 10
TOKEN_BYTES = 1000
FREE = Budget(1000, False, 1000)


@dataclass
class Worker:
    """Obeys as a rank would, and remembers what it did."""

    bad: set[int] = field(default_factory=set)  # pieces that cannot be loaded
    lossy: set[int] = field(default_factory=set)  # pieces of which this rank finds a rounded copy
    slow: set[int] = field(default_factory=set)  # pieces that do not arrive yet
    steps: list[int] = field(default_factory=list)  # tokens computed in each
    computed: list[PromptRows] = field(default_factory=list)
    probed: list[PromptRows] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def obey(self, orders: Orders) -> Answers:
        answers = Answers()
        for load in orders.load:
            pieces = [piece for piece in load.pieces if piece.index not in self.slow]
            answers.loaded += [self._loaded(load.request, piece) for piece in pieces]
        for probe in orders.probe:
            self.probed.append(probe.rows)
            attention = np.random.default_rng(0).random(probe.question, dtype=np.float32)
            answers.probed.append(Probed(probe.request, attention))
        self.steps.append(sum(slice.tokens for slice in orders.compute))
        self.computed += [slice.rows for slice in orders.compute]
        self.finished += orders.finish
        return answers

    def _loaded(self, request: str, piece: SegmentPiece) -> Loaded:
        if piece.index in self.bad:
            return Loaded(request, PieceLoaded(piece.index, None, incidents=("it is bad",)))
        return Loaded(request, PieceLoaded(piece.index, 0, "ram", 1, piece.index not in self.lossy))

    @property
    def rows(self) -> list[int]:
        return [position for slice in self.computed for position in slice.positions]


def run(scheduler: LinkScheduler, workers: list[Worker], budget: Budget = FREE, limit: int = 200) -> int:
    """Steps until nothing waits; vLLM goes on with what is finished from the step after on."""
    for step in range(limit):
        waiting = is_waiting(scheduler)
        orders = scheduler.step(budget, workers[0].finished)
        answers = Answers()
        for worker in workers:
            answers = answers.joined(worker.obey(orders))
        scheduler.answered(answers)
        if not waiting:
            return step
    raise AssertionError("it never ends")


MakeScheduler = Callable[..., LinkScheduler]


@pytest.fixture
def make_scheduler(tiny: Tiny, stored: KVStore) -> MakeScheduler:
    def make(
        *,
        ranks: int = 1,
        gpu: bool = False,
        ahead: bool = False,
        clock: Callable[[], float] = perf_counter,
        **settings: Any,
    ) -> LinkScheduler:
        return LinkScheduler(
            tiny.engine.spec.fingerprint,
            stored,
            LinkSettings(**{"link_when": "always", **settings}),
            ranks=ranks,
            layers=LAYERS,
            token_bytes=TOKEN_BYTES,
            steps=Stepping(gpu=gpu, ahead=ahead),
            clock=clock,
        )

    return make


class NamesDouble:
    """Stands for the names of a request's blocks: remembers what they were told."""

    def __init__(self, block: int = 0):
        """`block`: tokens of one that others may share; 0 is nothing."""
        self.links: list[LinkName] = []
        self.given_up: list[int] = []
        self.lost = False  # what it was named behind
        self.held = 0
        self._block = block

    def link(self, name: LinkName) -> None:
        self.links.append(name)

    @property
    def share(self) -> SharedBlocks | None:
        name = self.links[-1]
        return SharedBlocks(name.whole, name.end // self._block * self._block) if self._block else None

    def found(self, computed: int) -> bool:
        lost, self.lost = self.lost, False
        return not lost

    def give_up(self, computed: int) -> None:
        self.given_up.append(computed)


def plan(
    scheduler: LinkScheduler, name: str, ids: Sequence[int], params: dict[str, Any], foreign: str | None = None
) -> int | None:
    """Up to which position its KV will be that of a plain prefill; None for an ordinary request."""
    names = NamesDouble()
    scheduler.arrived(name, ids, params, names, foreign)
    scheduler._plans.wait(60)
    scheduler._adopt_plans()
    return names.links[0].exact if names.links else None


def arrive(scheduler: LinkScheduler, name: str, linker: str, *, skip: int = 0, segments: list[Segment] = PROMPT) -> int:
    """As vLLM would: it arrives, is matched, gets its blocks -> tokens that were parked."""
    ids = [token for segment in segments for token in segment.ids]
    plan(scheduler, name, ids, link_params(segments, linker))
    external = scheduler.matched(name, skip)
    assert external is not None
    if external:
        scheduler.allocated(name, range(100), external)
    return external


@pytest.fixture
def stored(tiny: Tiny) -> KVStore:
    """The document's variants, and of its first chunk another one."""
    store = open_store(codec="raw")
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=2)
    variants = list(cache.ingest(SYSTEM, DOCUMENT))
    store.put(cache.kvgen.capture(cache.system_variant(SYSTEM), variants[2:], DOCUMENT[0]))
    return store
