"""Up to where others may share the KV of a linked prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.store.base import KVStore
from ragcache.types import Segment, Text, VariantKey
from tests.ragcache.engine.vllm.conftest import (
    DOCUMENT,
    FREE,
    QUESTION,
    SYSTEM,
    MakeScheduler,
    Worker,
    arrive,
    plan,
    run,
)
from tests.tiny import Tiny, draw


@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        (DOCUMENT[3:], 7),
        (DOCUMENT[:1], 27),
        (DOCUMENT[:2], 58),
        ([DOCUMENT[0], DOCUMENT[2], DOCUMENT[1]], 27),
        ([Text(draw(3, 1)), DOCUMENT[0]], 7),
    ],
)
def test_exact_is_what_a_plain_prefill_would_hold(
    make_scheduler: MakeScheduler, middle: list[Segment], expected: int
) -> None:
    segments = [SYSTEM, *middle, QUESTION]
    ids = [token for segment in segments for token in segment.ids]
    assert plan(make_scheduler(), "a", ids, link_params(segments, "naive")) == expected
    assert plan(make_scheduler(share_exact=False), "a", ids, link_params(segments, "naive")) == 0


def test_an_exact_variant_that_is_shared_is_not_replaced_by_another(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    arrive(scheduler, "a", "naive", segments=[SYSTEM, *DOCUMENT[:1], QUESTION])
    (load,) = scheduler.step(Budget(10, False, 10)).load
    assert [len(piece.keys) for piece in load.pieces] == [1, 1]
    arrive(scheduler, "b", "naive", segments=[SYSTEM, DOCUMENT[3], DOCUMENT[0], QUESTION])
    (load,) = scheduler.step(Budget(10, False, 10)).load
    assert len(load.pieces[-1].keys) == 2


def rounded(store: KVStore, key: VariantKey) -> None:
    """As another process has stored it, with a codec that loses."""
    fetched = store.get(key)
    assert fetched is not None
    store.put(replace(fetched.variant, lineage=fetched.variant.lineage.rounded("int8")))


@pytest.mark.parametrize(("lossy", "expected"), [("none", 58), ("second", 27), ("first", 7), ("system", 0)])
def test_what_was_lost_at_rest_is_not_shared(
    make_scheduler: MakeScheduler, stored: KVStore, tiny: Tiny, lossy: str, expected: int
) -> None:
    fingerprint, (first, second) = tiny.engine.spec.fingerprint, DOCUMENT[:2]
    keys = {
        "system": VariantKey(fingerprint, "", (), SYSTEM.hash),
        "first": VariantKey(fingerprint, SYSTEM.hash, (), first.hash),
        "second": VariantKey(fingerprint, SYSTEM.hash, (first.hash,), second.hash),
    }
    if lossy in keys:
        rounded(stored, keys[lossy])
    segments = [SYSTEM, first, second, QUESTION]
    ids = [token for segment in segments for token in segment.ids]
    scheduler = make_scheduler(linker="naive")
    assert plan(scheduler, "a", ids, link_params(segments, "naive")) == expected
    scheduler.allocated("a", range(100), scheduler.matched("a", 0))
    (load,) = scheduler.step(FREE).load
    assert [piece.shared for piece in load.pieces] == [piece.start < expected for piece in load.pieces]


def test_the_report_tells_of_the_copies_that_were_placed(make_scheduler: MakeScheduler) -> None:
    """A rank's own RAM may hold what was computed, and another rank read what a codec left of it."""
    scheduler, workers = make_scheduler(ranks=2), [Worker(), Worker(lossy={1})]
    arrive(scheduler, "a", "naive", segments=[SYSTEM, *DOCUMENT[:3], QUESTION])
    run(scheduler, workers)
    told = scheduler.gone("a")
    assert told is not None
    assert [chunk["exact"] for chunk in told[KEY]["chunks"]] == [True, False, True]
