"""Compute from the front while the workers load from the back: every meeting point is that of a plain load."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.linking.base import Positions
from ragcache.loader import SYSTEM as SYSTEM_PIECE
from ragcache.loader import Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.reading import Pace
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.policy import Rates
from ragcache.report import COMPUTED, Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.loaders import DecidedApproach, known_rates
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
ALL = len(DOCUMENT)
LIMIT_S = 60.0
BLOCK = 32
IN_ORDER, MIXED = tuple(range(ALL)), (3, 0, 5, 1)
TOKENS = 12


class Gate:
    """A pace that lets so many pieces through, and no more until it is opened."""

    def __init__(self, count: int):
        self._left, self._lock = count, threading.Lock()
        self.opened = threading.Event()

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._left -= 1
            waits = self._left < 0
        if waits:
            self.opened.wait(LIMIT_S)


def quick_disk() -> Rates:
    """By which linking is sooner than computing, so that only a disk that stops makes the engine compute."""
    return known_rates(compute_s=1e-3, load_s=1e-12)


class FrontFirst(DecidedApproach):
    """Has a front of so many chunks computed, perhaps the System segment too, whatever the times are."""

    def __init__(self, pieces: Sequence[SegmentPiece], front: int, system: bool):
        self._front = {*range(front), *([SYSTEM_PIECE] if system else [])}

    def claims(
        self, piece: SegmentPiece, rows: Positions, tokens: int, *, final: bool, until: int | None = None
    ) -> bool:
        return final and piece.index in self._front


@dataclass
class Behind(Loader):
    """Brings all behind such a front; the front comes to nobody, until it is dropped."""

    threads: DiskThreads
    front: int
    system: bool

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        left = {*range(self.front), *([SYSTEM_PIECE] if self.system else [])}
        rest = [piece for piece in pieces if piece.index not in left]
        return BehindLoading(SequentialLoader(self.threads).begin(rest, store), left)

    def close(self) -> None:
        pass


@dataclass
class BehindLoading(Loading):
    rest: Loading
    left: set[int]

    def take(self) -> Delivery | None:
        return self.rest.take()

    @property
    def ended(self) -> bool:
        return self.rest.ended and not self.left

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return self.rest.awaited

    def drop(self, index: int, until: int | None = None) -> None:
        if until is None:
            self.left.discard(index)
        self.rest.drop(index, until)

    def stop(self) -> None:
        self.left.clear()
        self.rest.stop()


@dataclass
class Made:
    tokens: list[int]
    report: Report
    blocks: list[torch.Tensor]  # that are full, by layer

    @property
    def front(self) -> int:
        """So many leading chunks were computed."""
        tiers = [chunk.tier for chunk in self.report.chunks]
        front = tiers.count(COMPUTED)
        assert tiers == [COMPUTED] * front + ["disk"] * (len(tiers) - front)
        return front


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cake")


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair, folder: Path) -> Iterator[Pair]:
    with open_pair(
        store=open_store(folder, ram_bytes=0, codec="raw"), linking={"link_when": "sooner"}, block_size=BLOCK
    ) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        yield pair


@pytest.fixture
def pair(opened: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    drain(opened.engine)
    opened.engine.forget_prefixes()
    monkeypatch.setattr(opened.engine._connector.scheduler.pace, "rates", quick_disk())
    yield opened
    drain(opened.engine)
    opened.engine.check_integrity()


def prompt(places: Sequence[int]) -> list[Segment]:
    return [SYSTEM, *(DOCUMENT[place] for place in places), QUESTION]


def made(pair: Pair, segments: Sequence[Segment], linker: str, loader: Loader, meeting: Any = None) -> Made:
    """Over this loader, with the scheduler's own decisions or others."""
    scheduler, worker = pair.engine._connector.scheduler, pair.engine._worker
    lent: list[Sequence[int]] = []

    def allocated(request: str, blocks: Sequence[int], external: int) -> None:
        lent.append(blocks)
        type(scheduler).allocated(scheduler, request, blocks, external)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "allocated", allocated)
        patch.setattr(worker, "loader", loader)
        if meeting is not None:
            patch.setattr(scheduler.pace, "meeting", meeting)
        pair.engine.forget_prefixes()
        answer = pair.vllm.generate(segments, max_tokens=TOKENS, linker=linker)
        tokens = list(answer)
        drain(pair.engine)
    full = lent[0][: sum(map(len, segments)) // BLOCK]
    blocks = pair.engine._ask(lambda: [layer.kv_cache[list(full)].clone() for layer in worker.spans.layers])
    return Made(tokens, answer.report, blocks)


def cake(threads: DiskThreads, pace: Pace | None = None) -> CakeLoader:
    return CakeLoader(threads, pace=pace)


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    """One, so that pieces pass a gate in their order."""
    started = DiskThreads(1, "test-cake", LIMIT_S)
    yield started
    started.close()


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "auto:ratio=0.2"])
@pytest.mark.parametrize("places", [IN_ORDER, MIXED])
def test_every_meeting_point_is_that_of_a_plain_load(
    pair: Pair, threads: DiskThreads, linker: str, places: tuple[int, ...]
) -> None:
    segments, points = prompt(places), set[int]()
    for loaded in range(len(places) + 2):
        pair.engine._connector.scheduler.pace.rates = quick_disk()
        gate = Gate(loaded)
        try:
            found = made(pair, segments, linker, cake(threads, gate))
        finally:
            gate.opened.set()
        front, system = found.front, found.report.system_tier == COMPUTED
        points.add(front)
        plain = computed_front(pair, segments, linker, Behind(threads, front, system))
        assert (plain.front, plain.report.system_tier == COMPUTED) == (front, system)
        assert found.tokens == plain.tokens
        # Which rows are computed in one pass depends on the moment, and how many they are decides the last bits.
        for ours, theirs in zip(found.blocks, plain.blocks, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        check_as_torch(pair, segments, linker, found)
    assert len(points) > 2, points


def computed_front(pair: Pair, segments: Sequence[Segment], linker: str, loader: Behind) -> Made:
    return made(pair, segments, linker, loader, lambda pieces: FrontFirst(pieces, loader.front, loader.system))


def check_as_torch(pair: Pair, segments: Sequence[Segment], linker: str, found: Made) -> None:
    store: KVStore = pair.torch.store
    loader = SequentialLoader(front=found.front, system=found.report.system_tier == COMPUTED)
    cache = ChunkCache(pair.torch.engine, store, "naive", context_chunks=2, keep_missed=False, loader=loader)
    theirs = cache.generate(segments, max_tokens=TOKENS, linker=linker)
    assert found.tokens == list(theirs)
    counts = ("reused", "repaired", "computed")
    assert [getattr(found.report, one) for one in counts] == [getattr(theirs.report, one) for one in counts]
