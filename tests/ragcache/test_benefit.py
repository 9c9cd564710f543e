from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ragcache.linking import make_linker
from ragcache.planning import Candidate, Plan, PlannedChunk
from ragcache.policy import Rates, Terms, Work, worthwhile
from ragcache.scoring import Reuse
from ragcache.types import Chunk, Profile, Span, System, VariantInfo, VariantKey

SYSTEM, QUESTION, CHUNK = 40, 20, 200
AUTO = make_linker("auto")


def plan(*cached: bool, tier: str = "ram", nbytes: int = 4_000_000) -> Plan:
    chunks = []
    for index, hit in enumerate(cached):
        start = SYSTEM + index * CHUNK
        zeros = np.zeros((1, CHUNK), dtype=np.float32)
        profile = Profile(zeros, zeros[0], zeros[0], (SYSTEM,))
        info = VariantInfo(VariantKey("f", "s", (), str(index)), CHUNK, nbytes, tier, profile, lossless=True)
        found = Candidate(info, Reuse(0.0, 0.0, 0.5, exact=False, places=()), unchanged=False, exact=False)
        segment = Chunk(tuple(range(CHUNK)))
        chunks.append(PlannedChunk(index, segment, Span(start, start + CHUNK), (found,) if hit else ()))
    question = SYSTEM + len(cached) * CHUNK
    return Plan(tuple(range(question + QUESTION)), System(tuple(range(SYSTEM))), tuple(chunks), (), question, SYSTEM)


def hits(found: Plan) -> list[int]:
    return [chunk.index for chunk in found.chunks if chunk.candidates]


def test_chunks_that_are_all_cached_are_linked() -> None:
    found = worthwhile(plan(*[True] * 5), AUTO, Rates())
    assert hits(found) == [0, 1, 2, 3, 4]
    assert found.declined == 0


def test_a_little_of_a_long_prompt_is_not_worth_the_steps_that_a_link_takes() -> None:
    little = plan(*[True] * 3, *[False] * 17)
    assert hits(worthwhile(little, AUTO, Rates())) == [0, 1, 2]
    busy = worthwhile(little, AUTO, Rates(), Terms(steps=4, step_seconds=0.08))
    assert hits(busy) == []
    assert busy.declined == 3 * CHUNK


def test_a_tier_that_is_slower_than_computing_is_left_alone() -> None:
    rates = Rates()
    rates.observe_load("disk", 4_000_000, 5.0)
    assert hits(worthwhile(plan(True, True, tier="disk"), AUTO, rates)) == []
    assert hits(worthwhile(plan(True, True, tier="ram"), AUTO, rates)) == [0, 1]


def test_some_chunks_may_pay_where_others_do_not() -> None:
    rates = Rates()
    rates.observe_load("disk", 1_000_000_000, 10.0)
    mixed = plan(True, True, tier="disk")
    slow = plan(True, True, tier="disk", nbytes=400_000_000).chunks[1]
    found = worthwhile(replace(mixed, chunks=(mixed.chunks[0], slow)), AUTO, rates)
    assert hits(found) == [0]
    assert found.declined == CHUNK


def test_a_linker_that_computes_nearly_all_again_is_not_worth_its_place() -> None:
    rates = Rates()
    for _ in range(60):
        rates.observe_link(repr(AUTO), 1000, 990)
    rates.observe(Work(placed=1000), 0.2)
    assert hits(worthwhile(plan(*[True] * 5), AUTO, rates)) == []


def test_what_lies_there_already_need_not_be_linked() -> None:
    whole = plan(*[True] * 5)
    assert hits(worthwhile(whole, AUTO, Rates(), Terms(known=whole.question - 10, steps=3, step_seconds=0.03))) == []


def test_a_prompt_with_nothing_cached_stays_as_it_is() -> None:
    nothing = plan(False, False)
    found = worthwhile(nothing, AUTO, Rates())
    assert replace(found, planned_s=None) == nothing


def test_what_is_planned_is_the_sooner_way() -> None:
    """A link where it pays, and else a prefill; both by the rates, so a linked prompt is planned sooner."""
    rates = Rates()
    rows = Work.of_rows(0, SYSTEM + 5 * CHUNK + QUESTION) + Work(passes=1)
    plain = worthwhile(plan(*[False] * 5), AUTO, rates).planned_s
    assert plain is not None and plain == pytest.approx(rates.seconds(rows))
    linked = worthwhile(plan(*[True] * 5), AUTO, rates).planned_s
    assert linked is not None and linked < 0.5 * plain
    for _ in range(60):
        rates.observe_load("disk", 4_000_000, 5.0)
    assert worthwhile(plan(*[True] * 5, tier="disk"), AUTO, rates).planned_s == pytest.approx(plain)


def test_on_a_gpu_long_prompts_are_linked_and_short_ones_are_not() -> None:
    """As an H200 computes and places a model of 8 billion weights, of which little more is known than that: a pass of
    one row takes as long as one of some hundred, and nothing was brought from RAM yet.
    """

    def taken(work: Work) -> float:
        computed = max(0.02 * work.passes, 2.3e-5 * work.rows) + 2.3e-9 * work.attended
        return computed + 5e-6 * work.placed

    rates = Rates()
    for _ in range(8):
        for work in (*(Work.of_rows(0, rows) + Work(passes=1) for rows in (1, 256, 2048)), Work(placed=256)):
            rates.observe(work, taken(work))
    assert len(hits(worthwhile(plan(*[True] * 80, nbytes=26_000_000), AUTO, rates))) > 75
    assert hits(worthwhile(plan(*[True] * 3, nbytes=26_000_000), AUTO, rates)) == []
