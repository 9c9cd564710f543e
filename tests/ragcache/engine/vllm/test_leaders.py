"""Requests for the same link: one makes it, the others find it in vLLM's prefix cache."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.block_names import LinkName
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.report import PREFIX
from ragcache.types import Segment, Text
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    FREE,
    PROMPT,
    QUESTION,
    MakeScheduler,
    NamesDouble,
    Worker,
    run,
)
from tests.tiny import draw

ASKED_AT = sum(len(segment) for segment in PROMPT) - len(QUESTION)
BLOCK = 8
SHARED = ASKED_AT // BLOCK * BLOCK  # what a prefix cache of full blocks holds of it


def begin(scheduler: LinkScheduler, name: str, segments: list[Segment] = PROMPT, linker: str = "naive") -> NamesDouble:
    ids = [token for segment in segments for token in segment.ids]
    names = NamesDouble(BLOCK)
    scheduler.arrived(name, ids, link_params(segments, linker), names)
    scheduler._plans.wait(60)
    scheduler._adopt_plans()
    return names


def park(scheduler: LinkScheduler, name: str, computed: int = 0) -> None:
    external = scheduler.matched(name, computed)
    assert external
    scheduler.allocated(name, range(100), external)


@pytest.mark.parametrize("linker", ["naive", "auto", "first_tokens:k=4"])
def test_eight_alike_are_linked_once(make_scheduler: MakeScheduler, linker: str) -> None:
    scheduler, worker, names = make_scheduler(), Worker(), list("abcdefgh")
    for name in names:
        begin(scheduler, name, linker=linker)
    park(scheduler, "a")
    for name in names[1:]:
        assert scheduler.matched(name, 0) is None, "it waits for the first"
    run(scheduler, [worker])
    assert worker.finished == ["a"]
    for name in names[1:]:
        assert scheduler.matched(name, ASKED_AT) == 0, "vLLM has it all"
        told = scheduler.gone(name)
        assert told is not None
        assert [chunk["tier"] for chunk in told[KEY]["chunks"]] == [PREFIX] * 3
    scheduler.gone("a")
    scheduler.check_integrity()


def test_nobody_waits_for_what_cannot_be_shared(make_scheduler: MakeScheduler) -> None:
    """The block that the question begins in is each one's own."""
    scheduler = make_scheduler()
    for name in "abc":
        begin(scheduler, name)
        park(scheduler, name, computed=SHARED)


@pytest.mark.parametrize("ended", ["aborted", "aborted in a step", "broken"])
def test_nobody_waits_for_one_that_is_gone(make_scheduler: MakeScheduler, ended: str) -> None:
    scheduler = make_scheduler()
    for name in "ab":
        begin(scheduler, name)
    park(scheduler, "a")
    if ended != "aborted":
        scheduler.step(FREE)
    if ended == "broken":
        scheduler._unlink("a", "failed", "on purpose")
    else:
        scheduler.gone("a")
    park(scheduler, "b")


def test_one_that_lost_what_it_was_named_behind_is_looked_up_again(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    names = begin(scheduler, "a")
    names.lost = True
    assert scheduler.matched("a", 0) is None
    park(scheduler, "a")


def test_one_that_leads_no_more_holds_nobody_up(make_scheduler: MakeScheduler) -> None:
    """vLLM took its blocks back, and in the meantime a link takes longer than a prefill."""
    scheduler = make_scheduler(link_when="sooner")
    scheduler.pace._settings = LinkSettings(link_when="always")
    names = [begin(scheduler, name) for name in "ab"]
    park(scheduler, "a")
    scheduler.pace._settings = LinkSettings()
    assert scheduler.matched("a", ASKED_AT) == 0
    assert names[0].given_up == [ASKED_AT]
    scheduler.pace._settings = LinkSettings(link_when="always")
    park(scheduler, "b")


def test_a_tail_holds_the_others_until_it_is_computed(make_scheduler: MakeScheduler) -> None:
    """Its rows wait for the step in which vLLM computes the question: before that its blocks are not right."""
    scheduler, worker = make_scheduler(), Worker()
    for name in "ab":
        begin(scheduler, name, linker="first_tokens:k=4")
    park(scheduler, "a")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    assert worker.computed == []
    assert scheduler.matched("b", 0) is None
    scheduler.answered(worker.obey(scheduler.step(FREE, ["a"])))
    assert worker.computed != []
    assert scheduler.matched("b", SHARED) is not None


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=4"])
def test_where_vllm_schedules_ahead_a_leader_is_done_once_vllm_goes_on(
    make_scheduler: MakeScheduler, linker: str
) -> None:
    """Before that it has shown the blocks to nobody, though it will soon hear that they are there."""
    scheduler, worker = make_scheduler(ahead=True), Worker()
    for name in "ab":
        begin(scheduler, name, linker=linker)
    park(scheduler, "a")
    while not worker.finished:
        scheduler.answered(worker.obey(scheduler.step(FREE)))
    assert scheduler.matched("b", 0) is None
    scheduler.step(FREE, ["a"])
    assert scheduler.matched("b", SHARED) is not None


def test_other_links_wait_for_nobody(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    begin(scheduler, "a")
    park(scheduler, "a")
    begin(scheduler, "another linker", linker="first_tokens:k=4")
    begin(scheduler, "another order", segments=[PROMPT[0], *PROMPT[2:0:-1], *PROMPT[3:]])
    begin(scheduler, "less", segments=[*PROMPT[:2], QUESTION])
    for name in ("another linker", "another order", "less"):
        park(scheduler, name)


def named(scheduler: LinkScheduler, segments: list[Segment], linker: str = "naive") -> LinkName:
    names = begin(scheduler, "a", segments, linker)
    scheduler.gone("a")
    return names.links[0]


def test_a_link_is_named_by_what_serves_it(make_scheduler: MakeScheduler) -> None:
    """And not by the question, nor by the conversation between."""
    scheduler = make_scheduler()
    name = named(scheduler, PROMPT)
    assert named(scheduler, [*PROMPT[:-1], Text(draw(40, 3))]) == name
    assert named(scheduler, PROMPT, "auto").whole != name.whole
    assert named(scheduler, PROMPT, "cci:ratio=0.1").whole != named(scheduler, PROMPT, "cci:ratio=0.2").whole
    other = named(scheduler, [*PROMPT[:3], DOCUMENT[1], QUESTION])
    end = sum(len(segment) for segment in PROMPT[:3])
    assert other.salt(end) == name.salt(end)
    assert other.salt(end + 1) != name.salt(end + 1)
