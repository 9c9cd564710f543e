"""What is kept after an answer, and prompts that cannot be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragcache.cache import ChunkCache
from ragcache.errors import ConfigError, PromptError, StoreError
from ragcache.ingest import RETRY
from ragcache.loader.sequential import SequentialLoader
from ragcache.rates import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, Text
from tests.tiny import VOCABULARY, Tiny, assert_close, make_chunks, make_question, make_system, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)

MakeCache = Callable[..., ChunkCache]


class CallsOf:
    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call, self.arguments = call, list[Any]()

    def __call__(self, argument: Any) -> Any:
        self.arguments.append(argument)
        return self.call(argument)


def prompt(*middle: Segment) -> list[Segment]:
    return [SYSTEM, *middle, QUESTION]


# -- missed chunks ------------------------------------------------------------------------------------------------


def test_missed_chunks_are_kept_after_the_answer(make_cache: MakeCache) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[0], STRANGER)
    answer = cache.generate(segments, max_tokens=3)
    next(iter(answer))
    assert cache.prefill(segments).report.chunks[1].tier == COMPUTED, "not before the answer ends"
    list(answer)
    after = cache.prefill(segments)
    assert [chunk.tier for chunk in after.report.chunks] == ["ram", "ram"]
    assert all(chunk.exact for chunk in after.report.chunks)
    assert after.report.part == 0.0
    assert list(cache.generate(segments, max_tokens=3)) == answer.tokens


def test_a_chunk_that_leads_a_prompt_gets_its_lead_variant(make_cache: MakeCache, tiny: Tiny) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[2], DOCUMENT[1])
    first = cache.generate(segments, max_tokens=3)
    list(first)
    assert [chunk.exact for chunk in first.report.chunks] == [False, False]
    prefilled = cache.prefill(prompt(DOCUMENT[2]))
    assert prefilled.report.chunks[0].exact
    assert_close(prefilled.logits, stock(tiny.model, prefilled.plan.ids).logits[-1])


def test_kept_chunks_behind_inexact_ones_are_not_taken_for_exact(make_cache: MakeCache, tiny: Tiny) -> None:
    cache, segments = make_cache(*DOCUMENT, keep_missed=True), prompt(DOCUMENT[0], DOCUMENT[3], STRANGER)
    answer = cache.generate(segments, max_tokens=3)
    list(answer)
    second = cache.prefill(segments)
    assert [chunk.tier for chunk in second.report.chunks] == ["ram"] * 3
    assert [chunk.exact for chunk in second.report.chunks] == [True, False, False]
    assert_close(cache.prefill(segments, linker="cci:ratio=1").logits, stock(tiny.model, second.plan.ids).logits[-1])


class SlowDisk(Rates):
    def load_seconds(self, tier: str, nbytes: int) -> float:
        return 1e6


@pytest.mark.parametrize("settings", [{"rates": SlowDisk()}, {"loader": SequentialLoader(front=9)}])
@pytest.mark.parametrize("middle", [DOCUMENT, (*DOCUMENT, STRANGER)])
def test_what_was_computed_though_it_is_stored_is_not_captured_again(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], middle: Sequence[Chunk]
) -> None:
    store = open_store(None, None, None, "raw")
    cache = ChunkCache(tiny.engine, store, context_chunks=2, **settings)
    list(cache.ingest(SYSTEM, DOCUMENT))
    put, get = CallsOf(store.put), CallsOf(store.get)
    monkeypatch.setattr(store, "put", put)
    monkeypatch.setattr(store, "get", get)
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
    cache = ChunkCache(tiny.engine, open_store(None, None, None, "raw"), rates=SlowDisk())
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
    store = open_store(tmp_path, 0, 5000, "raw")
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
    cache = ChunkCache(tiny.engine, open_store(tmp_path, None, 5000, "raw"))
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
    assert all(chunk.tier == COMPUTED for chunk in cache.prefill(prompt(*DOCUMENT[:2])).report.chunks)


def test_they_are_not_where_that_is_not_wanted(make_cache: MakeCache) -> None:
    cache, segments = make_cache(keep_missed=False), prompt(DOCUMENT[0])
    list(cache.generate(segments, max_tokens=1))
    assert cache.prefill(segments).report.chunks[0].tier == COMPUTED


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([DOCUMENT[0], QUESTION], "starts with a System"),
        ([SYSTEM, DOCUMENT[0], SYSTEM, QUESTION], "second System"),
        ([SYSTEM, Chunk(()), QUESTION], "is empty"),
        ([SYSTEM, Chunk((1,) * 600), QUESTION], r"need 613 tokens.* has 512"),
        ([SYSTEM, Chunk((1, VOCABULARY)), QUESTION], "token 199 is not in the model's vocabulary of 199"),
        ([SYSTEM, Chunk((1, -1)), QUESTION], "token -1 "),
    ],
)
def test_a_bad_prompt_is_refused_and_disturbs_no_other(
    make_cache: MakeCache, tiny: Tiny, segments: list[Segment], message: str
) -> None:
    cache = make_cache(*DOCUMENT, keep_missed=True)
    running = cache.generate(prompt(*DOCUMENT[:2]), max_tokens=6)
    head = [next(iter(running))]
    for linker in ("naive", "query", "full"):
        with pytest.raises(PromptError, match=message):
            cache.generate(segments, max_tokens=1, linker=linker)
    with pytest.raises(PromptError, match="max_tokens is 0"):
        cache.generate(prompt(DOCUMENT[0]), max_tokens=0)
    assert head + list(running) == list(cache.generate(prompt(*DOCUMENT[:2]), max_tokens=6, linker="full"))


def test_the_answer_needs_room_too(make_cache: MakeCache) -> None:
    cache = make_cache()
    segments = prompt(Chunk((1,) * 480))
    assert len(list(cache.generate(segments, max_tokens=20))) == 20
    with pytest.raises(PromptError, match=r"prompt and answer need 513 tokens, the model's context has 512"):
        cache.generate(segments, max_tokens=21)


def test_ingest_refuses_bad_chunks_and_keeps_those_before(make_cache: MakeCache) -> None:
    cache = make_cache()
    for bad, message in ((Chunk(()), "empty"), (Chunk((VOCABULARY,)), "vocabulary"), (Chunk((1,) * 600), "647 .* 512")):
        stored = []
        with pytest.raises(PromptError, match=message):
            for variant in cache.ingest(SYSTEM, [DOCUMENT[0], bad, DOCUMENT[1]]):
                stored.append(variant)
        assert [variant.ids for variant in stored] == [DOCUMENT[0].ids]
    assert cache.prefill(prompt(DOCUMENT[0])).report.chunks[0].exact


def test_unknown_linkers_and_more_layers_than_there_are(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT)
    with pytest.raises(ConfigError, match="unknown linker 'nain'"):
        cache.prefill(prompt(DOCUMENT[0]), linker="nain")
    with pytest.raises(ConfigError, match=r"4 layers .* the model has 3"):
        cache.prefill(prompt(DOCUMENT[2]), linker="cacheblend:full_layers=4")


def test_a_full_store_ends_an_ingest_but_no_answer(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ChunkCache(tiny.engine, open_store(tmp_path, 0, 20_000, "raw"), "naive")  # holds the System segment alone
    with pytest.raises(StoreError, match=r"20,000|20000"):
        list(cache.ingest(SYSTEM, DOCUMENT))
    segments = prompt(*DOCUMENT[:2])
    answer = cache.generate(segments, max_tokens=4)
    ids = [token for segment in segments for token in segment.ids]
    assert_close(cache.prefill(segments).logits, stock(tiny.model, ids).logits[-1])
    assert list(answer) == list(cache.generate(segments, max_tokens=4, linker="full"))
    assert len(answer.report.incidents) == 2
    assert all(incident.startswith("KV not stored: ") for incident in answer.report.incidents)
    assert "KV not stored" in caplog.text
    cache.store.check_integrity()


def test_two_prompts_share_no_buffer(make_cache: MakeCache, tiny: Tiny) -> None:
    cache = make_cache(*DOCUMENT)
    one, other = cache.prefill(prompt(*DOCUMENT[:2])), cache.prefill(prompt(*DOCUMENT[:1]))
    for prefilled in (one, other):
        expected = stock(tiny.model, prefilled.plan.ids)
        assert_close(prefilled.buffer.k[:, :, : len(prefilled.plan.ids)], expected.k)


def test_the_system_segment_may_be_one_token(make_cache: MakeCache, tiny: Tiny) -> None:
    cache = make_cache()
    prefilled = cache.prefill([System((5,)), Chunk((6,)), Text((7,))])
    assert_close(prefilled.logits, stock(tiny.model, (5, 6, 7)).logits[-1])
