"""Inside vLLM too, what is computed from the front meets what is loaded from the back within a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch

from ragcache.engine.vllm.orders import Probe, PromptRows
from ragcache.engine.vllm.placement import Linking
from ragcache.linking.base import Positions
from ragcache.loader import Block, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.slices import slices
from ragcache.store import open_store
from ragcache.store.findings import DISK
from ragcache.types import Lineage, Origin, Span, VariantKey
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
from tests.loaders import DecidedApproach, small_parts
from tests.vllm_state import drain

PART = 16  # tokens that are read, and computed, at a time
KEY = VariantKey("model", "system", (), "chunk")


class MeetingAt(DecidedApproach):
    """All up to a position is computed, before anything comes, and nothing behind it."""

    def __init__(self, position: int, gate: Gate):
        self._position, self._gate = position, gate

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
    with small_parts(PART), pytest.MonkeyPatch.context() as patch:
        # Some reach over a meeting point, as those of a file of before do.
        patch.setattr("ragcache.store.entry.block_for", lambda tokens: PART + PART // 2)
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


def test_a_probe_reads_no_key_that_nobody_wrote() -> None:
    """Of a piece before the one that is met within all is there, whenever it comes; and of one that vLLM's prefix cache
    holds in part, nothing else is known.
    """
    linking = Linking((), skip=12, room=torch.full((2, 2, 1, 50, 4), torch.nan))
    before, across = SegmentPiece(0, 0, (KEY,)), SegmentPiece(1, 10, (KEY,))
    linking.drop(across.index, 24)
    linking.computes(range(12, 24))
    linking.room[0][:, :, 12:24] = 1.0  # as the pass keeps them
    for piece, tokens in ((before, 10), (across, 30)):
        kv = torch.ones(2, 1, tokens, 4)
        cut = Block(piece.start, 0, kv, kv).behind(linking.front(piece))
        linking.room[:, :, :, cut.span] = torch.stack((cut.k, cut.v))
        linking.has(piece, Origin(KEY, (1,) * tokens, Lineage(())))
    assert linking.placed == {0: slice(0, 10), 1: slice(24, 40)}
    probe = Probe("r", PromptRows((1,) * 10, tuple(range(40, 50)), ()), 40, range(2), "max")
    keys = linking.keys(probe)
    assert not keys[:, :, :40].isnan().any()
    assert keys[0, 0, :, 0].nan_to_num().tolist()[:40] == [1.0] * 10 + [0.0] * 2 + [1.0] * 28
    assert linking.missing(40) == []
