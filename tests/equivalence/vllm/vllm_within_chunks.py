"""Inside vLLM too, what is computed from the front meets what is loaded from the back within a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch

from ragcache.engine.vllm.meeting import Approach
from ragcache.linking.base import Positions
from ragcache.loader import SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.slices import slices
from ragcache.store import open_store
from ragcache.store.findings import DISK
from ragcache.types import Span
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.equivalence.vllm.vllm_cake import (
    BLOCK,
    DOCUMENT,
    LIMIT_S,
    MIXED,
    SYSTEM,
    FrontFirst,
    Gate,
    made,
    prompt,
    quick_disk,
)
from tests.vllm_state import drain

PART = 16  # tokens that are read, and computed, at a time


class MeetingAt(Approach):
    """All up to a position is computed, before anything comes, and nothing behind it."""

    def __init__(self, position: int, gate: Gate):
        self._position, self._gate = position, gate

    def looked(self, when: float) -> None:
        pass

    def came(self, piece: SegmentPiece) -> None:
        pass

    def claims(
        self, piece: SegmentPiece, rows: Positions, tokens: int, *, final: bool, until: int | None = None
    ) -> bool:
        end = piece.start + piece.tokens if until is None else until
        if final and end <= self._position:
            return True
        self._gate.opened.set()
        return False


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("within")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragcache.store.entry.block_for", lambda tokens: PART)
        patch.setattr("ragcache.slices.BLOCK", PART)
        patch.setattr("ragcache.slices.FINE", PART)
        store = open_store(folder, ram_bytes=0, codec="raw")
        with open_pair(store=store, linking={"link_when": "sooner"}, block_size=BLOCK) as opened:
            list(opened.torch.ingest(SYSTEM, DOCUMENT))
            patch.setattr(opened.engine._connector.scheduler.pace, "rates", quick_disk())
            yield opened
            drain(opened.engine)
            opened.engine.check_integrity()


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    started = DiskThreads(2, "test-within", LIMIT_S)
    yield started
    started.close()


def spans_of(places: Sequence[int]) -> list[Span]:
    ends = list(accumulate((len(DOCUMENT[place]) for place in places), initial=len(SYSTEM)))
    return [Span(*ends) for ends in pairwise(ends)]


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5"])
def test_every_slice_ends_at_a_meeting_point(pair: Pair, threads: DiskThreads, linker: str) -> None:
    segments, spans = prompt(MIXED), spans_of(MIXED)
    loaded = made(pair, segments, linker, CakeLoader(threads, claims=False), lambda pieces: None)
    gate = Gate(0)
    loader = CakeLoader(threads, pace=gate, claims=False)
    with pytest.MonkeyPatch.context() as patch:  # one chunk after the other, as is compared with the torch engine's
        patch.setattr("ragcache.slices.BLOCK", 1024)
        computed = made(pair, segments, linker, loader, lambda pieces: FrontFirst(pieces, len(MIXED), True))
    gate.opened.set()
    for end in [part.end for span in spans for part in slices(span, DISK)]:
        pair.engine._connector.scheduler.pace.rates = quick_disk()  # whatever the last took
        gate = Gate(0)
        try:
            loader = CakeLoader(threads, pace=gate, claims=False)
            found = made(pair, segments, linker, loader, lambda pieces, end=end, gate=gate: MeetingAt(end, gate))
        finally:
            gate.opened.set()
        for span, told in zip(spans, found.report.chunks, strict=True):
            assert told.tokens == told.reused + told.repaired + told.computed
            assert told.computed == max(0, min(end, span.end) - span.start)
        assert found.report.repaired <= loaded.report.repaired
        last = spans[-1].end // BLOCK  # whole blocks of what is before the question
        for ours, fresh, cached in zip(found.blocks, computed.blocks, loaded.blocks, strict=True):
            torch.testing.assert_close(ours[: end // BLOCK], fresh[: end // BLOCK], rtol=1e-5, atol=1e-5)
            if linker == "naive":
                torch.testing.assert_close(ours[-(-end // BLOCK) : last], cached[-(-end // BLOCK) : last])
