"""Prompts whose segments stand in any order: System need not be first, nor be there, and a chunk may be last."""

from __future__ import annotations

import random

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Segment, Text
from tests.equivalence.test_identities import assert_equals_stock, is_stock
from tests.linkers import WITHOUT_LIMIT
from tests.tiny import Tiny, draw, make_chunks, make_question, make_system, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)
TEXT, OTHER = Text(draw(6, 50)), Text(draw(9, 51))
ORDERS: dict[str, list[Segment]] = {
    "text first": [TEXT, SYSTEM, DOCUMENT[1], DOCUMENT[0], QUESTION],
    "System between": [DOCUMENT[2], SYSTEM, DOCUMENT[0], TEXT, DOCUMENT[1], QUESTION],
    "System last": [DOCUMENT[1], DOCUMENT[2], SYSTEM],
    "no System": [DOCUMENT[1], TEXT, DOCUMENT[2], QUESTION],
    "a chunk last": [SYSTEM, QUESTION, DOCUMENT[2], DOCUMENT[0], DOCUMENT[3]],
    "a chunk alone": [DOCUMENT[1]],
    "a text alone": [QUESTION],
    "System alone": [SYSTEM],
    "strangers too": [TEXT, STRANGER, DOCUMENT[3], OTHER, SYSTEM, STRANGER, DOCUMENT[1]],
}


def ingested(tiny: Tiny, keep_missed: bool = False) -> ChunkCache:
    store = open_store(codec="raw")
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=2, keep_missed=keep_missed)
    list(cache.ingest(SYSTEM, DOCUMENT))
    return cache


# These two leave the head of a prompt's first chunk as it is, and one of them the tail of its last one.
LEFT = {("first_tokens", order) for order in ORDERS} | {("boundary", "System last")}


@pytest.mark.parametrize(
    ("order", "linker"),
    [(order, spec) for order in ORDERS for spec in WITHOUT_LIMIT if (spec.partition(":")[0], order) not in LEFT],
)
def test_a_linker_without_limit_equals_stock(tiny: Tiny, order: str, linker: str) -> None:
    made = prefill_prompt(ingested(tiny), ORDERS[order], linker)
    assert_equals_stock(made, tiny)
    report = made.report
    system = len(SYSTEM) if ORDERS[order][0] is SYSTEM and report.system_tier != COMPUTED else 0
    assert report.reused + report.repaired + report.computed + system == report.before_question
    assert report.before_question + report.question_tokens == report.prompt_tokens


@pytest.mark.parametrize(
    ("order", "reused"),
    [("text first", 71), ("System between", 71), ("System last", 38), ("no System", 0), ("a chunk last", 78)],
)
def test_what_is_reused_without_repair_is_not_exact(tiny: Tiny, order: str, reused: int) -> None:
    made = prefill_prompt(ingested(tiny), ORDERS[order])
    assert made.report.reused == reused
    assert not any(chunk.exact for chunk in made.report.chunks)
    assert is_stock(made, tiny) == (reused == 0)


def test_nothing_is_exact_behind_a_system_that_does_not_stand_first(tiny: Tiny) -> None:
    """Its chunks were computed behind System alone, and here they are not."""
    cache = ingested(tiny)
    for segments in ([DOCUMENT[1], SYSTEM, DOCUMENT[0], QUESTION], [SYSTEM, TEXT, DOCUMENT[0], QUESTION]):
        (chunk,) = prefill_prompt(cache, segments).report.chunks
        assert (chunk.tier, chunk.exact) == ("ram", False)


def test_chunks_of_prompts_without_a_system_are_kept_as_if_each_stood_first(tiny: Tiny) -> None:
    cache = ingested(tiny, keep_missed=True)
    segments: list[Segment] = [DOCUMENT[1], DOCUMENT[2], QUESTION]
    first, second = (cache.generate(segments, max_tokens=4) for _ in range(2))
    assert [chunk.tier for chunk in first.report.chunks] == [COMPUTED] * 2
    list(first)
    list(second)
    third = cache.generate(segments, max_tokens=4)
    assert [(chunk.tier, chunk.exact) for chunk in third.report.chunks] == [("ram", True), ("ram", False)]
    alone = prefill_prompt(cache, [DOCUMENT[2], QUESTION])
    assert [chunk.exact for chunk in alone.report.chunks] == [True]
    assert_equals_stock(alone, tiny)


@pytest.mark.parametrize("seed", range(12))
def test_mixtures_by_lot_equal_stock(tiny: Tiny, seed: int) -> None:
    lot = random.Random(seed)
    cache = ingested(tiny)
    pool: list[Segment] = [*DOCUMENT, STRANGER, TEXT, OTHER]
    segments = [lot.choice(pool) for _ in range(lot.randint(1, 6))]
    if lot.random() < 0.7:
        segments.insert(lot.randint(0, len(segments)), SYSTEM)
    linker = lot.choice(["cci:ratio=1", "query:ratio=1", "cacheblend:ratio=1", "full"])
    assert_equals_stock(prefill_prompt(cache, segments, linker), tiny)
    answer = cache.generate(segments, max_tokens=5, linker=linker)
    ids = [token for segment in segments for token in segment.ids]
    for token in answer:
        assert token == int(stock(tiny.model, tuple(ids)).logits[-1].argmax())
        ids.append(token)
