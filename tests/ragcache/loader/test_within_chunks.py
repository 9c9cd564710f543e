"""Within a long chunk too, what is computed from the front meets what is loaded from the back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.caches import prefill_prompt
from ragcache.engine.torch.generation import Prefilled
from ragcache.linkage import Linkage
from ragcache.linking import make_linker
from ragcache.loader import SYSTEM, Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.planning import first_address, plan_prompt
from ragcache.policy import Terms, Work, worthwhile
from ragcache.rates import Rates
from ragcache.slices import slices
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.findings import BUCKET, DISK, RAM
from ragcache.store.format import BLOCK, FINE, MOST_FINE, block_for, blocks_of
from ragcache.types import Segment, Span
from tests.cold_prompts import ALL, LIMIT_S, Gate, assert_is_stock, ingested, over
from tests.cold_prompts import prompt as cold
from tests.loaders import known_rates, small_parts
from tests.tiny import Tiny, assert_close

PART = 8  # tokens that are read, and computed, at a time
CONTEXT = 2
MIXED = (3, 0, 5, 1, 7)


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    with small_parts(PART):
        yield


@pytest.fixture(scope="module")
def stores(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, _small_parts: None) -> dict[int, KVStore]:
    """By the chunks that each was computed behind."""
    return {context: ingested(tiny, tmp_path_factory.mktemp("within"), context) for context in (CONTEXT, ALL)}


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    """One, so that it is known what is read."""
    made = DiskThreads(1, "test-within", LIMIT_S)
    yield made
    made.close()


class MeetingAt(CakeLoader):
    """Nothing comes before all up to a position is computed, and nothing is computed behind it."""

    def __init__(self, threads: DiskThreads, position: int):
        self.gate, self._position = Gate(0), position
        super().__init__(threads, pace=self.gate)

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        loading, gate, position = super().begin(pieces, store, rates), self.gate, self._position
        claim = loading.claim

        def claims(piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
            end = piece.start + piece.tokens if until is None else until
            if final and end <= position:
                return claim(piece, 0.0, final=final, until=until)
            gate.opened.set()
            return False

        loading.claim = claims  # type: ignore[method-assign]
        loading.affords = lambda piece, seconds, until: False  # type: ignore[method-assign]
        return loading


def meeting_points(tiny: Tiny, segments: Sequence[Segment], store: KVStore) -> list[Span]:
    """The slices of all chunks."""
    plan = plan_prompt(segments, tiny.engine.spec.fingerprint, store)
    return [part for chunk in plan.chunks for part in slices(chunk.span, DISK)]


def met_at(made: Prefilled, position: int) -> None:
    """What was computed ends there, by the report."""
    for planned, told in zip(made.plan.chunks, made.report.chunks, strict=True):
        assert told.tokens == told.reused + told.repaired + told.computed and told.reused >= 0
        assert told.computed == max(0, min(position, planned.span.end) - planned.span.start)


@pytest.mark.parametrize(("context", "places"), [(ALL, tuple(range(ALL))), (CONTEXT, MIXED)])
@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "cci:ratio=1.0"])
def test_every_slice_ends_at_a_meeting_point(
    tiny: Tiny, stores: dict[int, KVStore], threads: DiskThreads, context: int, places: tuple[int, ...], linker: str
) -> None:
    store, segments = stores[context], cold(*places)
    plain = over(tiny, store, SequentialLoader())
    computed = prefill_prompt(plain, segments, "full").buffer
    loaded = prefill_prompt(plain, segments, linker)
    parts, question = meeting_points(tiny, segments, store), loaded.plan.question
    assert len(parts) > 2 * len(places)
    for part in parts:
        loader = MeetingAt(threads, part.end)
        try:
            made = prefill_prompt(over(tiny, store, loader), segments, linker)
        finally:
            loader.gate.opened.set()
        met_at(made, part.end)
        for ours, theirs in ((made.buffer.k, computed.k), (made.buffer.v, computed.v)):
            assert_close(ours[:, :, : part.end], theirs[:, :, : part.end])
        if linker == "naive":
            for ours, theirs in ((made.buffer.k, loaded.buffer.k), (made.buffer.v, loaded.buffer.v)):
                assert torch.equal(ours[:, :, part.end : question], theirs[:, :, part.end : question])
        if context == ALL:
            assert_is_stock(made, tiny)
        assert made.report.repaired <= loaded.report.repaired
        stored = (blocks_of(len(chunk.span), PART) for chunk in made.plan.chunks)
        starts = [chunk.span.start for chunk in made.plan.chunks]
        behind = [start + one.end > part.end for start, blocks in zip(starts, stored, strict=True) for one in blocks]
        assert loader.gate.reads == max(1, sum(behind)), "the first is begun before anything is computed"


def test_a_block_that_reaches_over_the_meeting_point_is_placed_behind_it(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads
) -> None:
    """As one does in a file of before, whose blocks are larger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragcache.store.entry.block_for", lambda tokens: PART + PART // 2)
        store = ingested(tiny, tmp_path, CONTEXT)
    segments, plain = cold(*MIXED), over(tiny, store, SequentialLoader())
    computed = prefill_prompt(plain, segments, "full").buffer
    loaded = prefill_prompt(plain, segments, "naive")
    for part in meeting_points(tiny, segments, store):
        loader = MeetingAt(threads, part.end)
        try:
            made = prefill_prompt(over(tiny, store, loader), segments, "naive")
        finally:
            loader.gate.opened.set()
        met_at(made, part.end)
        assert_close(made.buffer.k[:, :, : part.end], computed.k[:, :, : part.end])
        behind = slice(part.end, loaded.plan.question)
        assert torch.equal(made.buffer.k[:, :, behind], loaded.buffer.k[:, :, behind])


def test_what_is_read_in_part_is_near_for_the_next_one(tiny: Tiny, tmp_path: Path) -> None:
    """Or a prompt of one long chunk would be read from the disk for ever, where one that is read whole is not."""
    ingested(tiny, tmp_path)
    segments, store = cold(0, 1), open_store(tmp_path, codec="raw")
    parts = meeting_points(tiny, segments, store)
    threads = DiskThreads(1, "test-within", LIMIT_S)
    loader = MeetingAt(threads, parts[0].end)
    try:
        prefill_prompt(over(tiny, store, loader), segments, "naive")
        loader._risings._thread.submit(lambda: None).future.result(LIMIT_S)  # behind what rises
    finally:
        loader.gate.opened.set()
        loader.close()
    infos = [chunk.candidates[0].info for chunk in plan_prompt(segments, tiny.engine.spec.fingerprint, store).chunks]
    assert [info.tier for info in infos] == [RAM, RAM]
    assert sum(tier.hits for tier in store.stats()) == 2, "each once; System is computed"
    again = prefill_prompt(over(tiny, store, SequentialLoader()), segments, "naive")
    assert_is_stock(again, tiny)


def test_a_disk_is_forgotten_once_by_a_piece_that_is_not_begun(
    tiny: Tiny, stores: dict[int, KVStore], threads: DiskThreads
) -> None:
    rates = known_rates(1e-6, 1e-9, a_read=1.0)
    forgotten = list[str]()
    rates.not_read = forgotten.append  # type: ignore[method-assign]
    loader = CakeLoader(threads)
    begin = loader.begin

    def slice_by_slice(*told: Any) -> Loading:
        loading = begin(*told)
        loading.affords = lambda piece, seconds, until: False  # type: ignore[method-assign]
        return loading

    loader.begin = slice_by_slice  # type: ignore[method-assign]
    made = prefill_prompt(over(tiny, stores[ALL], loader, rates), cold(1, 3), "naive")
    assert [chunk.tier for chunk in made.report.chunks] == ["computed"] * 2
    assert forgotten == [DISK] * 3, "System and two chunks"


def test_a_disk_is_as_quick_as_what_was_asked_of_it(
    tiny: Tiny, stores: dict[int, KVStore], threads: DiskThreads
) -> None:
    """Of a chunk that was met within, and given up when it did not come."""
    now, told, gate = [0.0], list[int](), Gate(0)
    rates = known_rates(1e-6, 1e-3)
    plan = plan_prompt(cold(1), tiny.engine.spec.fingerprint, stores[CONTEXT])
    *_, piece = Linkage(plan, make_linker("naive"), first_address(plan, tiny.engine.spec.fingerprint)).pieces()
    loading = CakeLoader(threads, pace=gate, clock=lambda: now[0]).begin([piece], stores[CONTEXT], rates)
    try:
        assert gate.shut.wait(LIMIT_S)
        until = piece.slices[0].end
        assert loading.claim(piece, 1e-6, until=until)
        now[0] = 1e6
        rates.observe_load = lambda tier, nbytes, seconds: told.append(nbytes)  # type: ignore[method-assign]
        assert loading.claim(piece, 1e-6)
    finally:
        gate.opened.set()
        loading.stop()
    assert told == [piece.behind(until).nbytes] and told[0] < piece.nbytes


def test_what_is_read_whole_is_computed_whole() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragcache.slices.BLOCK", BLOCK)
        patch.setattr("ragcache.slices.FINE", FINE)
        assert list(slices(Span(5, 5 + BLOCK), DISK)) == [Span(5, 5 + BLOCK)]
        assert list(slices(Span(5, 6 + BLOCK), BUCKET)) == [Span(5, 6 + BLOCK)]
        parts = list(slices(Span(5, 6 + BLOCK), DISK))
    assert [len(part) for part in parts] == [FINE] * (BLOCK // FINE - 1) + [FINE + 1]
    blocks = {BLOCK: BLOCK, BLOCK + 1: FINE, MOST_FINE: FINE, MOST_FINE + 1: BLOCK}
    assert {tokens: block_for(tokens) for tokens in blocks} == blocks
    system = SegmentPiece(SYSTEM, 0, (), tier=DISK, nbytes=1000, tokens=50)
    assert system.slices == [Span(0, 50)]


def test_of_a_piece_is_left_what_is_not_computed() -> None:
    piece = SegmentPiece(3, 100, (), tier=DISK, nbytes=1000, tokens=50)
    assert piece.behind(100) == piece
    rest = piece.behind(110)
    assert (rest.skip, rest.tokens, rest.nbytes) == (10, 40, 800)
    assert rest.slices[0] == Span(110, 116)
    assert rest.behind(120) == piece.behind(120)
    assert piece.behind(500).tokens == 0


def test_a_long_chunk_is_foretold_to_be_met_within(tiny: Tiny, stores: dict[int, KVStore]) -> None:
    """Neither loading nor computing all of it would be as soon."""
    segments = cold(1)
    plan = plan_prompt(segments, tiny.engine.spec.fingerprint, stores[ALL])
    (chunk,) = plan.chunks
    info = chunk.candidates[0].info
    rates = known_rates(1e-3, 31e-3 / info.nbytes)  # one takes as long as the other
    linker = make_linker("naive")
    foretold = worthwhile(plan, linker, rates, Terms(overlaps=True)).planned_s
    loading = worthwhile(plan, linker, rates, Terms()).planned_s
    assert foretold is not None
    assert loading is not None
    whole = rates.seconds(Work.of_rows(chunk.span.start, chunk.span.end))
    assert foretold < loading - 0.25 * whole
