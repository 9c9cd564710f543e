"""Prompts and documents that cannot be served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.errors import ConfigError, PromptError, StoreError
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, Text
from tests.tiny import VOCABULARY, Tiny, assert_close, make_chunks, make_question, make_system, stock

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)

MakeCache = Callable[..., ChunkCache]


def prompt(*middle: Segment) -> list[Segment]:
    return [SYSTEM, *middle, QUESTION]


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "no segments"),
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
    assert prefill_prompt(cache, prompt(DOCUMENT[0])).report.chunks[0].exact


def test_unknown_linkers_and_more_layers_than_there_are(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT)
    with pytest.raises(ConfigError, match="unknown linker 'nain'"):
        prefill_prompt(cache, prompt(DOCUMENT[0]), linker="nain")
    assert cache.chosen("cacheblend:full_layers=3").name == "cacheblend"
    with pytest.raises(ConfigError, match="full_layers=4 is more than the 3 of the model"):
        cache.chosen("cacheblend:full_layers=4")


def test_a_full_store_ends_an_ingest_but_no_answer(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ChunkCache(
        tiny.engine, open_store(tmp_path, ram_bytes=0, disk_bytes=20_000, codec="raw"), "naive"
    )  # holds the System segment alone
    with pytest.raises(StoreError, match=r"20,000|20000"):
        list(cache.ingest(SYSTEM, DOCUMENT))
    segments = prompt(*DOCUMENT[:2])
    answer = cache.generate(segments, max_tokens=4)
    ids = [token for segment in segments for token in segment.ids]
    assert_close(prefill_prompt(cache, segments).logits, stock(tiny.model, ids).logits[-1])
    assert list(answer) == list(cache.generate(segments, max_tokens=4, linker="full"))
    assert len(answer.report.incidents) == 2
    assert all(incident.startswith("KV not stored: ") for incident in answer.report.incidents)
    assert "KV not stored" in caplog.text
    cache.store.check_integrity()


def test_two_prompts_share_no_buffer(make_cache: MakeCache, tiny: Tiny) -> None:
    cache = make_cache(*DOCUMENT)
    one, other = prefill_prompt(cache, prompt(*DOCUMENT[:2])), prefill_prompt(cache, prompt(*DOCUMENT[:1]))
    for prefilled in (one, other):
        expected = stock(tiny.model, prefilled.plan.ids)
        assert_close(prefilled.buffer.k[:, :, : len(prefilled.plan.ids)], expected.k)


def test_the_system_segment_may_be_one_token(make_cache: MakeCache, tiny: Tiny) -> None:
    cache = make_cache()
    prefilled = prefill_prompt(cache, [System((5,)), Chunk((6,)), Text((7,))])
    assert_close(prefilled.logits, stock(tiny.model, (5, 6, 7)).logits[-1])
