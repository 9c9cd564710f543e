"""The identities of the design, on small random models in float32: reuse that must be exact is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.generation import Prefilled
from ragcache.linking import LINKERS
from ragcache.loader.sequential import SequentialLoader
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, Text
from tests.linkers import WITHOUT_LIMIT
from tests.tiny import Tiny, assert_close, draw, make_chunks, make_question, make_system, stock

CONTEXT = 2  # chunks, so that a short document rolls
SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25, 22, 14)
# `first_tokens` alone takes the first chunk of a prompt as it is, so that one has to stand there rightly.
ORDERS = {"its own first": [0, 4, 3, 1], "new order": [3, 0, 5, 1], "twice the same": [2, 5, 2]}


def make_cache(tiny: Tiny, front: int = 0) -> ChunkCache:
    store = open_store(codec="raw")
    return ChunkCache(tiny.engine, store, "naive", context_chunks=CONTEXT, loader=SequentialLoader(front=front))


def ingested(tiny: Tiny, front: int = 0) -> ChunkCache:
    cache = make_cache(tiny, front)
    assert len(list(cache.ingest(SYSTEM, DOCUMENT))) == len(DOCUMENT)
    return cache


def prompt(*middle: Segment) -> list[Segment]:
    return [SYSTEM, *middle, QUESTION]


def assert_equals_stock(prefilled: Prefilled, tiny: Tiny, tolerance: float = 1e-4) -> None:
    ids = prefilled.plan.ids
    expected = stock(tiny.model, ids)
    assert_close(prefilled.buffer.k[:, :, : len(ids)], expected.k, tolerance)
    assert_close(prefilled.buffer.v[:, :, : len(ids)], expected.v, tolerance)
    assert_close(prefilled.logits, expected.logits[-1], tolerance)


def is_stock(prefilled: Prefilled, tiny: Tiny) -> bool:
    try:
        assert_equals_stock(prefilled, tiny, 1e-2)
    except AssertionError:
        return False
    return True


# -- 1: everything repaired ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("linker", WITHOUT_LIMIT)
def test_a_linker_without_limit_equals_stock(tiny: Tiny, linker: str, order: str) -> None:
    if linker.startswith("first_tokens"):
        order = "its own first"
    cache, segments = ingested(tiny), prompt(*(DOCUMENT[place] for place in ORDERS[order]))
    assert not is_stock(prefill_prompt(cache, segments), tiny), "without repair it differs, or this shows nothing"
    assert_equals_stock(prefill_prompt(cache, segments, linker=linker), tiny)


@pytest.mark.parametrize("linker", ["full", "cci:ratio=1", "query:ratio=1", "cacheblend:ratio=1"])
def test_on_every_model_with_texts_and_missing_chunks_between(every_tiny: Tiny, linker: str) -> None:
    cache, (stranger,) = ingested(every_tiny), make_chunks(27, seed=5)
    middle = [DOCUMENT[3], Text(draw(6, 50)), stranger, DOCUMENT[1], Text(draw(3, 51)), Text(draw(4, 52)), DOCUMENT[0]]
    assert_equals_stock(prefill_prompt(cache, prompt(*middle), linker=linker), every_tiny)


@pytest.mark.parametrize("linker", [*LINKERS])
def test_with_nothing_cached_every_linker_equals_stock(tiny: Tiny, linker: str) -> None:
    cache = make_cache(tiny)
    prefilled = prefill_prompt(cache, prompt(*DOCUMENT[:3], Text(draw(4, 50)), DOCUMENT[4]), linker=linker)
    assert [chunk.tier for chunk in prefilled.report.chunks] == [COMPUTED] * 4
    assert_equals_stock(prefilled, tiny)


@pytest.mark.parametrize("linker", [*LINKERS])
def test_a_prompt_without_chunks_equals_stock(tiny: Tiny, linker: str) -> None:
    assert_equals_stock(prefill_prompt(make_cache(tiny), prompt(Text(draw(9, 50))), linker=linker), tiny)


# -- 2: a chunk behind its own context ----------------------------------------------------------------------------


def test_chunks_behind_their_own_context_equal_stock_without_repair(every_tiny: Tiny) -> None:
    cache = ingested(every_tiny)
    for count in range(1, CONTEXT + 2):
        assert_equals_stock(prefill_prompt(cache, prompt(*DOCUMENT[:count])), every_tiny)


@pytest.mark.parametrize("linker", [linker for linker in LINKERS if linker != "full"])
def test_no_linker_spends_anything_on_them(tiny: Tiny, linker: str) -> None:
    prefilled = prefill_prompt(ingested(tiny), prompt(*DOCUMENT[: CONTEXT + 1]), linker=linker)
    assert_equals_stock(prefilled, tiny)
    assert all(chunk.exact for chunk in prefilled.report.chunks)
    assert (prefilled.report.repaired, prefilled.report.computed, prefilled.report.part) == (0, 0, 0.0)


def test_a_chunk_whose_context_had_a_context_is_not_exact(tiny: Tiny) -> None:
    cache = make_cache(tiny)
    variants = list(cache.ingest(SYSTEM, DOCUMENT))
    assert [bool(variant.key.history) for variant in variants] == [False] * (CONTEXT + 1) + [True] * 3
    for middle in (DOCUMENT[: CONTEXT + 2], DOCUMENT[1 : CONTEXT + 2]):
        prefilled = prefill_prompt(cache, prompt(*middle))
        assert not prefilled.report.chunks[-1].exact
        assert not is_stock(prefilled, tiny)


def test_a_text_before_a_chunk_makes_it_inexact(tiny: Tiny) -> None:
    cache = ingested(tiny)
    prefilled = prefill_prompt(cache, prompt(DOCUMENT[0], Text(draw(3, 50)), DOCUMENT[1]))
    assert [chunk.exact for chunk in prefilled.report.chunks] == [True, False]


def test_kv_of_another_system_segment_is_never_taken_for_its_own(tiny: Tiny) -> None:
    """All of it may be mended, also where the chunks before it are the same."""
    cache, segments = ingested(tiny), [make_system(9), *DOCUMENT[:2], QUESTION]
    assert [chunk.exact for chunk in prefill_prompt(cache, segments).report.chunks] == [False] * 2
    assert_equals_stock(prefill_prompt(cache, segments, linker="cci:ratio=1"), tiny)


def test_a_chunk_of_the_same_ids_as_the_system_segment_is_another_entry(tiny: Tiny) -> None:
    double = Chunk(SYSTEM.ids)
    for first_of_all in ([double], [DOCUMENT[0], double]):
        cache = make_cache(tiny)
        list(cache.ingest(SYSTEM, first_of_all))
        assert_equals_stock(prefill_prompt(cache, prompt(*first_of_all)), tiny)


def test_without_context_the_first_chunk_alone_is_exact(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive", context_chunks=0)
    variants = list(cache.ingest(SYSTEM, DOCUMENT[:3]))
    assert [variant.key.context for variant in variants] == [()] * 3
    for chunk in DOCUMENT[:3]:
        prefilled = prefill_prompt(cache, prompt(chunk))
        assert prefilled.report.chunks[0].exact
        assert_equals_stock(prefilled, tiny)
    assert [chunk.exact for chunk in prefill_prompt(cache, prompt(*DOCUMENT[:3])).report.chunks] == [True, False, False]


# -- 4: compute from the front, load from the back ----------------------------------------------------------------


def test_every_meeting_point_gives_the_same_kv(every_tiny: Tiny) -> None:
    chunks: Sequence[Chunk] = DOCUMENT[: CONTEXT + 1]
    for front in range(len(chunks) + 1):
        prefilled = prefill_prompt(ingested(every_tiny, front), prompt(*chunks))
        tiers = [chunk.tier for chunk in prefilled.report.chunks]
        assert tiers == [COMPUTED] * front + ["ram"] * (len(chunks) - front)
        assert_equals_stock(prefilled, every_tiny)
