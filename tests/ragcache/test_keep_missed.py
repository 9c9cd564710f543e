"""What is captured after an answer, at once or when nobody waits."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.errors import StoreError
from ragcache.keeping import Keeper
from ragcache.kvgen import RETRY
from ragcache.loader.sequential import SequentialLoader
from ragcache.planning import plan_prompt
from ragcache.policy import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, Variant
from tests.tiny import Tiny, assert_close, make_chunks, make_question, make_system, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)

MakeCache = Callable[..., ChunkCache]


class CallsOf:
    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call, self.arguments = call, list[Any]()

    def __call__(self, argument: Any, **more: Any) -> Any:
        self.arguments.append(argument)
        return self.call(argument, **more)


def prompt(*middle: Segment) -> list[Segment]:
    return [SYSTEM, *middle, QUESTION]


def test_missed_chunks_are_kept_after_the_answer(make_cache: MakeCache) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[0], STRANGER)
    answer = cache.generate(segments, max_tokens=3)
    next(iter(answer))
    assert prefill_prompt(cache, segments).report.chunks[1].tier == COMPUTED, "not before the answer ends"
    list(answer)
    after = prefill_prompt(cache, segments)
    assert [chunk.tier for chunk in after.report.chunks] == ["ram", "ram"]
    assert all(chunk.exact for chunk in after.report.chunks)
    assert after.report.part == 0.0
    assert list(cache.generate(segments, max_tokens=3)) == answer.tokens


def test_an_answer_does_not_fail_with_what_is_kept_of_it(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make_cache(*DOCUMENT, keep_missed=True)

    def full(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(cache, "keep", full)
    answer = cache.generate(prompt(DOCUMENT[0], STRANGER), max_tokens=3)
    assert len(list(answer)) == 3
    assert answer.report.incidents == ["what a prompt lacked was not captured: MemoryError: no room"]


def test_a_chunk_that_leads_a_prompt_gets_its_lead_variant(make_cache: MakeCache, tiny: Tiny) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[2], DOCUMENT[1])
    first = cache.generate(segments, max_tokens=3)
    list(first)
    assert [chunk.exact for chunk in first.report.chunks] == [False, False]
    prefilled = prefill_prompt(cache, prompt(DOCUMENT[2]))
    assert prefilled.report.chunks[0].exact
    assert_close(prefilled.logits, stock(tiny.model, prefilled.plan.ids).logits[-1])


def test_kept_chunks_behind_inexact_ones_are_not_taken_for_exact(make_cache: MakeCache, tiny: Tiny) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[0], DOCUMENT[3], STRANGER)
    answer = cache.generate(segments, max_tokens=3)
    list(answer)
    second = prefill_prompt(cache, segments)
    assert [chunk.tier for chunk in second.report.chunks] == ["ram"] * 3
    assert [chunk.exact for chunk in second.report.chunks] == [True, False, False]
    repaired = prefill_prompt(cache, segments, linker="cci:ratio=1")
    assert_close(repaired.logits, stock(tiny.model, second.plan.ids).logits[-1])


class SlowDisk(Rates):
    def load_seconds(self, tier: str, nbytes: int, reads: int = 1) -> float:
        return 1e6


@pytest.mark.parametrize("settings", [{"rates": SlowDisk()}, {"loader": SequentialLoader(front=9)}])
@pytest.mark.parametrize("middle", [DOCUMENT, (*DOCUMENT, STRANGER)])
def test_what_was_computed_though_it_is_stored_is_not_captured_again(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], middle: Sequence[Chunk]
) -> None:
    store = open_store(codec="raw")
    cache = ChunkCache(tiny.engine, store, context_chunks=2, **settings)
    list(cache.ingest(SYSTEM, DOCUMENT))
    put, get = CallsOf(store.put), CallsOf(store.open)
    monkeypatch.setattr(store, "put", put)
    monkeypatch.setattr(store, "open", get)
    for stored in ([], []) if middle is DOCUMENT else ([STRANGER.hash], []):
        put.arguments.clear()
        get.arguments.clear()
        answer = cache.generate(prompt(*middle), max_tokens=1)
        list(answer)
        assert {chunk.tier for chunk in answer.report.chunks} == {COMPUTED}
        assert [variant.key.chunk for variant in put.arguments] == stored
        assert [key.chunk for key in get.arguments if key.context] == [
            chunk.hash for chunk in DOCUMENT[-2:] for _ in stored
        ], "only what the captured chunk stands behind is read"


def test_a_lead_variant_is_captured_once_where_links_are_declined(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), rates=SlowDisk())
    list(cache.ingest(SYSTEM, DOCUMENT))
    kept = []
    for _ in range(2):
        answer = cache.generate(prompt(DOCUMENT[2]), max_tokens=1)
        list(answer)
        kept.append("keep" in answer.report.seconds)
    assert kept == [True, False]


def test_what_the_store_has_no_room_for_is_not_computed_again_for_each_prompt(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, ram_bytes=0, disk_bytes=5000, codec="raw")
    cache = ChunkCache(tiny.engine, store)
    put = CallsOf(store.put)
    monkeypatch.setattr(store, "put", put)
    tries = []
    for _ in range(RETRY + 2):
        put.arguments.clear()
        list(cache.generate(prompt(*DOCUMENT[:2]), max_tokens=1))
        tries.append([variant.key.chunk for variant in put.arguments].count(DOCUMENT[1].hash))
    assert tries == [1, *[0] * (RETRY - 1), 1, 0]


def test_what_a_full_disk_cannot_keep_serves_from_ram(tiny: Tiny, tmp_path: Path) -> None:
    cache = ChunkCache(tiny.engine, open_store(tmp_path, disk_bytes=5000, codec="raw"))
    for tier in (COMPUTED, "ram"):
        answer = cache.generate(prompt(*DOCUMENT[:2]), max_tokens=1)
        list(answer)
        assert [chunk.tier for chunk in answer.report.chunks] == [tier] * 2
        assert any("not stored" in told for told in answer.report.incidents) == (tier == COMPUTED)


def test_a_full_recompute_keeps_nothing(make_cache: MakeCache) -> None:
    cache = make_cache(keep_missed=True)
    answer = cache.generate(prompt(*DOCUMENT[:2]), max_tokens=2, linker="full")
    list(answer)
    assert "keep" not in answer.report.seconds
    assert all(chunk.tier == COMPUTED for chunk in prefill_prompt(cache, prompt(*DOCUMENT[:2])).report.chunks)


def test_they_are_not_where_that_is_not_wanted(make_cache: MakeCache) -> None:
    cache, segments = make_cache(keep_missed=False), prompt(DOCUMENT[0])
    list(cache.generate(segments, max_tokens=1))
    assert prefill_prompt(cache, segments).report.chunks[0].tier == COMPUTED


# -- kept when there is time ---------------------------------------------------------------------------------------


def stored(cache: ChunkCache, *chunks: Chunk) -> Variant:
    """The last one, as it was captured behind the others."""
    found = plan_prompt(prompt(*chunks), cache.engine.spec.fingerprint, cache.store).chunks[-1].candidates[0]
    fetched = cache.store.get(found.info.key)
    assert found.exact
    assert fetched is not None
    return fetched.variant


def test_a_keeper_captures_the_same_when_nobody_waits(make_cache: MakeCache) -> None:
    at_once, keeper = make_cache(*DOCUMENT, keep_missed=True), Keeper()
    patient, segments = make_cache(*DOCUMENT, keep_missed=True, keeper=keeper), prompt(DOCUMENT[0], STRANGER)
    list(at_once.generate(segments, max_tokens=2))
    with keeper.answering():
        answer = patient.generate(segments, max_tokens=2)
        list(answer)
        assert prefill_prompt(patient, segments).report.chunks[1].tier == COMPUTED
        assert "keep" not in answer.report.seconds
    keeper.settle()
    kept, late = (stored(cache, DOCUMENT[0], STRANGER) for cache in (at_once, patient))
    assert_close(late.k, kept.k)
    assert_close(late.v, kept.v)
    np.testing.assert_allclose(late.profile.inter, kept.profile.inter, atol=1e-6)
    np.testing.assert_allclose(late.profile.received, kept.profile.received, atol=1e-6)


def test_a_capture_holds_on_between_layers(make_cache: MakeCache, tiny: Tiny) -> None:
    """Whoever begins to wait for an answer meanwhile."""
    layers: list[int] = []
    system = make_cache().system_variant(SYSTEM)
    tiny.engine.capture([system], STRANGER, lambda: layers.append(1))
    assert len(layers) == tiny.engine.spec.layers


def test_a_capture_that_holds_on_has_memory_of_its_own(make_cache: MakeCache, tiny: Tiny) -> None:
    """What it holds on for takes the memory that was touched before."""
    system = make_cache().system_variant(SYSTEM)

    def block() -> int:
        return tiny.engine.buffer(300).k.data_ptr()

    touched, seen = block(), set[int]()
    tiny.engine.capture([system], STRANGER, lambda: seen.add(block()))
    assert seen == {touched}


def test_what_a_keeper_could_not_store_is_told_with_the_next_answer(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper()
    cache = make_cache(*DOCUMENT, keep_missed=True, keeper=keeper)

    def full(variant: Variant) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(cache.store, "put", full)
    list(cache.generate(prompt(STRANGER), max_tokens=1))
    keeper.settle()
    unread = cache.generate([SYSTEM, QUESTION], max_tokens=1)
    assert unread.report.incidents == [], "without chunks, as a search asks the model: nobody sees its report"
    told = cache.generate(prompt(DOCUMENT[0]), max_tokens=1).report.incidents
    assert told == ["KV not stored: no room"]


def test_an_answer_that_is_over_leaves_its_memory(make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be captured for it may wait for long."""
    keeper = Keeper()
    cache = make_cache(*DOCUMENT, keep_missed=True, keeper=keeper)
    with keeper.answering():
        buffers: list[weakref.ref[object]] = []
        buffer = cache.engine.buffer

        def watched(*args: Any, **kwargs: Any) -> Any:
            made = buffer(*args, **kwargs)
            buffers.append(weakref.ref(made))
            return made

        monkeypatch.setattr(cache.engine, "buffer", watched)
        list(cache.generate(prompt(STRANGER), max_tokens=1))
        gc.collect()
        assert [made() for made in buffers] == [None]
    keeper.settle()
