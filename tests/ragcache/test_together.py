"""Answers to one prompt that are asked for together: it is computed once, and they are what each was alone."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import closing, suppress
from itertools import zip_longest

import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.torch import generation
from ragcache.engine.torch.generation import Prefilled
from ragcache.report import PREFIX
from ragcache.sampling import Sampling
from ragcache.store.ram import RamTier
from ragcache.together import Together
from ragcache.types import Segment, Text
from tests.tiny import Tiny, draw, make_chunks, make_system

PROMPT: list[Segment] = [make_system(), *make_chunks(40, 30), Text(draw(9, 3))]
WARM = [Sampling(temperature=1.0, seed=seed, repetition_penalty=1.2) for seed in range(4)]


@pytest.fixture
def cache(tiny: Tiny) -> ChunkCache:
    cache = ChunkCache(tiny.engine, RamTier(None), "auto", keep_missed=False)
    cache.ingest(PROMPT[0], PROMPT[1:-1])  # type: ignore[arg-type]
    return cache


@pytest.fixture
def prefilled(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Prefilled]]:
    """What was computed as a whole."""
    made, compute = list[weakref.ref[Prefilled]](), generation.prefill

    def counted(*of: object) -> Prefilled:
        found = compute(*of)  # type: ignore[arg-type]
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(generation, "prefill", counted)
    return made


def test_they_are_what_each_was_alone(cache: ChunkCache, prefilled: list[weakref.ref[Prefilled]]) -> None:
    """Though their tokens come in turns, and one is left before its end."""
    alone = [list(cache.generate(PROMPT, max_tokens=12, sampling=one)) for one in WARM]
    assert len({tuple(tokens) for tokens in alone}) > 1
    prefilled.clear()
    together = Together(len(WARM))
    streams = [cache.generate(PROMPT, max_tokens=12, sampling=one, together=together) for one in WARM]
    assert len(prefilled) == 1
    streams[0].close()
    rows = list(zip_longest(*streams[1:]))
    assert [[token for token in one if token is not None] for one in zip(*rows, strict=True)] == alone[1:]
    assert streams[0].report.prefix_tokens == 0
    for stream in streams[1:]:
        report = stream.report
        assert report.prefix_tokens == report.prompt_tokens == sum(map(len, PROMPT))
        assert {chunk.tier for chunk in report.chunks} == {PREFIX}
        assert report.computed == report.repaired == 0
        assert report.cached == report.prompt_tokens - report.question_tokens + report.question_cached
        assert report.answer_tokens == len(stream.tokens) > 0
    del streams, stream, report
    gc.collect()
    assert prefilled[0]() is None, "nobody holds their KV any more"


def test_who_asks_something_else_is_not_served_by_it(
    cache: ChunkCache, prefilled: list[weakref.ref[Prefilled]]
) -> None:
    """Another border, another question or another linker."""
    prompts = [PROMPT, [*PROMPT[:-1], Text(draw(9, 4))], [*PROMPT[:-1], Text(draw(9, 3), "somebody")], PROMPT]
    together = Together(4)
    for prompt, linker in zip(prompts, ("auto", "auto", "auto", "full"), strict=True):
        alone = list(cache.generate(prompt, max_tokens=4, linker=linker))
        with closing(cache.generate(prompt, max_tokens=4, linker=linker, together=together)) as stream:
            assert list(stream) == alone
            assert stream.report.prefix_tokens == 0
    assert len(prefilled) == 8


def test_a_prompt_that_could_not_be_computed_is_the_next_ones_to_compute() -> None:
    together, asked = Together(3), list[int]()

    def broken() -> str:
        asked.append(1)
        raise OSError("away")

    with suppress(OSError):
        together.made("a", broken)
    assert together.made("a", lambda: "made") == ("made", True)
    assert together.made("a", broken) == ("made", False)
    assert together.made("a", lambda: "anew") == ("anew", True), "it was let go with the last of them"
    assert asked == [1]


def test_the_others_wait_for_the_first() -> None:
    together, begun, go = Together(3), threading.Event(), threading.Event()
    found = list[tuple[str, bool]]()

    def slow() -> str:
        begun.set()
        assert go.wait(60)
        return "first"

    threads = [threading.Thread(target=lambda: found.append(together.made("a", slow)))]
    threads[0].start()
    assert begun.wait(60)
    threads += [threading.Thread(target=lambda: found.append(together.made("a", lambda: "other"))) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [("first", False), ("first", False), ("first", True)]
