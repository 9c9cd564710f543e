"""What is computed next while the rest of a prompt is loaded, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.caches import prefill_prompt
from ragcache.engine.vllm.block_names import link_name
from ragcache.engine.vllm.jobs import NamedLinkage, RequestJob
from ragcache.link_job import LinkJob
from ragcache.link_phase import Phase, furthest
from ragcache.linkage import BLOCKS, Linkage
from ragcache.linking import make_linker
from ragcache.linking.base import Positions
from ragcache.loader import SYSTEM, PieceLoaded, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.expectation import Expectation, saved
from ragcache.loader.threads import DiskThreads
from ragcache.planning import PrefixBlock, first_address, plan_prompt
from ragcache.policy import Terms, worthwhile
from ragcache.slices import begins_pass, ends_behind, slices
from ragcache.store.base import KVStore
from ragcache.store.findings import BUCKET, DISK
from ragcache.timeline import COMPUTE
from ragcache.types import Span
from tests.cold_prompts import LIMIT_S, assert_is_stock, ingested, over
from tests.cold_prompts import prompt as cold
from tests.loaders import DecidedApproach, known_rates, small_parts
from tests.tiny import Tiny

PART = 4
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    with small_parts(PART):
        yield


@pytest.fixture(scope="module")
def store(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, _small_parts: None) -> KVStore:
    return ingested(tiny, tmp_path_factory.mktemp("fronts"))


def linkage(tiny: Tiny, store: KVStore, *places: int) -> Linkage:
    plan, name = plan_prompt(cold(*places), tiny.engine.spec.fingerprint, store), tiny.engine.spec.fingerprint
    return Linkage(plan, make_linker("naive"), first_address(plan, name))


def beside_a_block(tiny: Tiny, store: KVStore, tokens: range) -> tuple[LinkJob, Span, Span]:
    """A prompt whose first chunk a stored prefix covers in these tokens, with its System segment -> and both spans."""
    made = linkage(tiny, store, 0, 1)
    span, info = made.plan.chunks[0].span, made.plan.chunks[0].candidates[0].info
    covered = Span(span.start + tokens.start, span.start + tokens.stop)
    block = PrefixBlock(covered, covered.start, replace(info, tokens=len(tokens)))
    job = LinkJob(replace(made, plan=replace(made.plan, prefix=(block,))))
    job.loaded(PieceLoaded(SYSTEM, 0, DISK, 1))
    return job, span, covered


def never(rows: Positions, until: int) -> bool:
    return False


def test_ends_are_one_slice_two_and_four_behind_what_is_computed() -> None:
    span = Span(3, 3 + 10 * PART + 1)
    ends = [part.end for part in slices(span, DISK)]
    assert len(ends) == 10 and ends[-1] == span.end
    assert list(ends_behind(0, span, DISK)) == [ends[0], ends[1], ends[3], ends[7], ends[9]]
    assert list(ends_behind(ends[0], span, DISK)) == [ends[1], ends[2], ends[4], ends[8], ends[9]]
    assert list(ends_behind(ends[0] + 1, span, DISK)) == [ends[1], ends[2], ends[4], ends[8], ends[9]]
    assert list(ends_behind(ends[8], span, DISK)) == [ends[9]]
    assert list(ends_behind(0, span, BUCKET)) == [span.end]
    assert [number for number in range(1, 20) if begins_pass(number)] == [1, 2, 4, 8, 16]


def test_as_much_is_computed_as_is_afforded_and_some_of_what_lacks() -> None:
    piece, lacking = SegmentPiece(0, 0, ()), np.arange(6, 20)

    def reached(most: int) -> tuple[int, int, int | None]:
        found = furthest(piece, [4, 8, 12, 20], lacking, lambda rows, until: len(rows) <= most)
        return found.until, len(found.rows), found.part

    assert reached(0) == (8, 2, 8), "up to 4 nothing is lacking"
    assert reached(5) == (8, 2, 8)
    assert reached(6) == (12, 6, 12)
    assert reached(100) == (20, 14, None)
    nothing = furthest(piece, [4, 8], NONE, never)
    assert (nothing.until, len(nothing.rows), nothing.part) == (8, 0, None)


def test_half_of_what_the_rest_takes_is_afforded() -> None:
    piece, rates = SegmentPiece(0, 0, (), tier=DISK, nbytes=100, tokens=10), known_rates(1e-3, 1e-7)
    saves = saved(rates, piece, PART)
    assert saves == pytest.approx(4e-6)
    arrival = Expectation(waiting=1e-5, reading=0.0, so_far=0.0)
    assert saved(rates, piece, 10) == pytest.approx(4e-6), "its last slice, of 6 tokens, may be here by then"
    assert arrival.affords(2.99e-6, saves) and not arrival.affords(3.01e-6, saves)


def test_what_is_soon_computed_is_computed_in_few_passes(tiny: Tiny, store: KVStore) -> None:
    """By each slice alone it would be a pass for every few tokens."""
    threads, rates = DiskThreads(2, "test-fronts", LIMIT_S), known_rates(1e-6, 1e-9, a_read=1.0)
    try:
        made = prefill_prompt(over(tiny, store, CakeLoader(threads), rates), cold(1, 3), "naive")
    finally:
        threads.close()
    passes = [stretch for stretch in made.report.timeline if stretch.kind == COMPUTE]
    assert [chunk.tier for chunk in made.report.chunks] == ["computed"] * 2
    assert len(passes) == 3, "System and the two chunks"
    assert_is_stock(made, tiny)


def test_what_was_loaded_before_is_not_told_as_computed(tiny: Tiny, store: KVStore) -> None:
    """Nor is placing taken for slower than it is."""
    job = LinkJob(linkage(tiny, store, 0, 1))
    first, second = (chunk.span for chunk in job.linkage.plan.chunks)
    for index in (SYSTEM, 0):
        job.loaded(PieceLoaded(index, 0, DISK, 1))
    assert job.awaited is not None and job.final
    front = job.front(job.awaited, never, final=True)
    assert (front.part, list(front.rows)) == (second.start + PART, list(range(second.start, second.start + PART)))
    job.overtake(front)
    job.computed(front)
    job.loaded(PieceLoaded(1, 0, DISK, 1))
    assert job.placed_tokens == second.end - PART
    job.choose(None)  # type: ignore[arg-type]  # everything is exact
    told = [(chunk.reused, chunk.computed, chunk.repaired) for chunk in job.report.chunks]
    assert told == [(len(first), 0, 0), (len(second) - PART, PART, 0)]
    assert job.report.system_tier == DISK and job.repair == (0, 0)


def test_of_a_whole_front_nothing_is_told_as_met(tiny: Tiny, store: KVStore) -> None:
    job = LinkJob(linkage(tiny, store, 0, 1))
    job.loaded(PieceLoaded(SYSTEM, 0, DISK, 1))
    assert job.awaited is not None
    front = job.front(job.awaited, lambda rows, until: True, final=True)
    assert front.part is None
    job.overtake(front)
    job.computed(front)
    job.loaded(PieceLoaded(1, 0, DISK, 1))
    plan = job.linkage.plan
    assert job.placed_tokens == plan.head + len(plan.chunks[1].span)


def test_a_block_that_ends_amid_what_is_computed_makes_nothing_lacking(tiny: Tiny, store: KVStore) -> None:
    """A chunk may begin before a stored block and reach beyond it: then that block is awaited behind the chunk."""
    job, span, _ = beside_a_block(tiny, store, range(PART, 2 * PART))
    chunk = job.awaited
    assert chunk is not None and chunk.index == 0
    whole = job.front(chunk, lambda rows, until: True, final=True)
    job.overtake(whole)
    job.computed(whole)
    awaited = job.awaited
    assert awaited is not None and awaited.index == BLOCKS
    covered = job.front(awaited, never, final=True)
    assert not len(covered.rows)
    job.overtake(covered)
    job.computed(covered)
    assert job.awaited is not None and job.awaited.index == 1
    ahead = job.front(job.awaited, never, final=True)
    assert ahead.rows[0] == span.end, "nothing before it is computed a second time"


def test_a_chunk_that_a_prefix_covers_in_part_is_computed_behind_it(tiny: Tiny, store: KVStore) -> None:
    job, span, block = beside_a_block(tiny, store, range(2 * PART))
    job.loaded(PieceLoaded(BLOCKS, 0, DISK, 1))
    assert job.awaited is not None and job.awaited.index == 0
    front = job.front(job.awaited, never, final=True)
    assert front.part is not None and front.part > block.end
    assert list(front.rows) == list(range(block.end, front.part))
    job.overtake(front)
    job.computed(front)
    for index in (0, 1):
        job.loaded(PieceLoaded(index, 0, DISK, 1))
    job.choose(None)  # type: ignore[arg-type]  # everything is exact
    told, computed = job.report.chunks[0], front.part - block.end
    assert (told.reused, told.computed, told.repaired) == (len(span) - computed, computed, 0)
    assert job.report.prefix_tokens == len(block)


def test_what_was_computed_before_a_prefix_came_is_told(tiny: Tiny, store: KVStore) -> None:
    job, span, _ = beside_a_block(tiny, store, range(2 * PART))
    assert job.awaited is not None and job.awaited.index == 0
    front = job.front(job.awaited, never, final=True)
    assert list(front.rows) == list(range(span.start, span.start + PART))
    job.overtake(front)
    job.computed(front)
    for index in (BLOCKS, 0, 1):
        job.loaded(PieceLoaded(index, 0, DISK, 1))
    job.choose(None)  # type: ignore[arg-type]  # everything is exact
    told = job.report.chunks[0]
    assert (told.reused, told.computed, told.repaired) == (len(span) - PART, PART, 0)


def test_what_is_lost_of_a_prefix_within_a_linked_chunk_is_told_as_computed(tiny: Tiny, store: KVStore) -> None:
    job, span, block = beside_a_block(tiny, store, range(2 * PART))
    job.loaded(PieceLoaded(BLOCKS, None))
    for index in (0, 1):
        job.loaded(PieceLoaded(index, 0, DISK, 1))
    job.choose(None)  # type: ignore[arg-type]  # everything is exact
    told = job.report.chunks[0]
    assert list(job.rows) == list(range(block.start, block.end))
    assert (told.reused, told.computed, told.repaired) == (len(span) - len(block), len(block), 0)
    assert job.report.prefix_tokens == 0


class AtOnce(DecidedApproach):
    """Whatever is asked about is computed."""

    def claims(self, *told: Any, **named: Any) -> bool:
        return True


def test_inside_vllm_nothing_is_chosen_before_a_claimed_part_is_computed(tiny: Tiny, store: KVStore) -> None:
    """All else may have come by then."""
    made = linkage(tiny, store, 0, 1)
    named = NamedLinkage(
        made.plan, made.linker, made.system, name=link_name(made.plan, made.linker, 0), exact=made.plan.tail
    )
    job = RequestJob("a", named, range(100), 0, ranks=1, layers=2)
    job.load(AtOnce())
    for index in (SYSTEM, 0):
        job.loaded(PieceLoaded(index, 0, DISK, 1))
    dropped = job.drop(100)
    span = made.plan.chunks[1].span
    assert dropped is not None and (dropped.piece, dropped.until) == (1, span.start + PART)
    job.loaded(PieceLoaded(1, 0, DISK, 1))
    assert job.phase is Phase.LOADING and job.drop(100) is None
    ahead = job.ahead(3, 10)
    assert ahead is not None and job.phase is Phase.LOADING, "one row is left"
    ahead = job.ahead(100, 10)
    assert ahead is not None and ahead.rows.positions == (span.start + PART - 1,)
    assert job.phase is not Phase.LOADING
    assert (job.report.chunks[1].computed, job.report.chunks[1].reused) == (PART, len(span) - PART)


def test_what_is_known_costs_no_pass_of_a_slice(tiny: Tiny, store: KVStore) -> None:
    """A prefix cache holds the first chunk: that it could be computed in many slices makes nothing slower."""
    plan, linker = linkage(tiny, store, 1, 3).plan, make_linker("naive")
    known = plan.chunks[0].span.end
    rates = known_rates(1e-1, 2e-6)

    def foretold(tokens: int) -> float | None:
        with small_parts(tokens):
            return worthwhile(plan, linker, rates, Terms(known=known, step_seconds=1e-2, overlaps=True)).planned_s

    assert foretold(PART) == pytest.approx(foretold(1000), rel=1e-6)
