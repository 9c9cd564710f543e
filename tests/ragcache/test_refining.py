"""Chunks that prompts link out of their context are computed in it, while nobody waits; prompts to come are nearer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ragcache import refining as module
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.keeping import MOST_WAITING, Keeper
from ragcache.planning import Plan, plan_prompt
from ragcache.refining import AT_ONCE, LEAST_TOKENS, Refining
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.eviction import VARIANTS
from ragcache.types import Chunk, System
from tests.prefixes import text
from tests.tiny import make_chunks, make_system, make_tiny

DOCUMENT = make_chunks(20, 21, 22, 23)
OTHER = make_chunks(24, 25, seed=7)
QUESTION = text(8, 3)


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


@pytest.fixture
def cache(engine: TorchEngine) -> Iterator[ChunkCache]:
    """Each document is captured, and a chunk is computed in a prompt when it is met out of its context again."""
    keeper = Keeper()
    cache = ChunkCache(engine, open_store(codec="raw"), "naive", keeper=keeper)
    cache.refining = Refining(2)
    for document in (DOCUMENT, OTHER):
        list(cache.ingest(SYSTEM, document))
    yield cache
    keeper.close()


SYSTEM: System = make_system()


def asked(cache: ChunkCache, *chunks: Chunk, system: System = SYSTEM) -> Report:
    stream = cache.generate([system, *chunks, QUESTION], max_tokens=1)
    list(stream)
    assert cache.keeper is not None
    cache.keeper.settle()
    return stream.report


def contexts(cache: ChunkCache, chunk: Chunk) -> list[tuple[str, ...]]:
    plan = plan_prompt([SYSTEM, DOCUMENT[0], chunk, QUESTION], cache.engine.spec.fingerprint, cache.store)
    return sorted(one.info.key.context for one in plan.chunks[-1].candidates)


def test_the_second_time_it_is_computed_in_its_context(cache: ChunkCache) -> None:
    prompt = (OTHER[0], DOCUMENT[2])
    before = contexts(cache, DOCUMENT[2])
    assert asked(cache, *prompt).chunks[1].overlap == 0
    assert contexts(cache, DOCUMENT[2]) == before, "once may be chance"
    asked(cache, *prompt)
    assert contexts(cache, DOCUMENT[2]) == sorted([*before, (OTHER[0].hash,)])
    report = asked(cache, *prompt)
    assert report.chunks[1].overlap == 1 and report.chunks[1].exact, "no other variant of what stands before it served"
    assert cache.refining is not None and cache.refining.captured == 1 and cache.refining.seconds > 0


def test_what_it_computes_is_what_a_prefill_would_hold(cache: ChunkCache, engine: TorchEngine) -> None:
    prompt = (OTHER[0], OTHER[1], DOCUMENT[3])
    for _ in range(2):
        asked(cache, *prompt)
    found = plan_prompt([SYSTEM, *prompt, QUESTION], engine.spec.fingerprint, cache.store).chunks[-1].candidates[0]
    assert found.info.key.context == (OTHER[0].hash, OTHER[1].hash)
    kept = cache.store.get(found.info.key)
    fresh = ChunkCache(engine, open_store(codec="raw"), "naive")
    *_, expected = fresh.ingest(SYSTEM, prompt)
    assert kept is not None
    assert (kept.variant.k == expected.k).all() and (kept.variant.v == expected.v).all()


def test_answers_come_nearer(cache: ChunkCache) -> None:
    prompt = [SYSTEM, OTHER[1], DOCUMENT[1], DOCUMENT[3], QUESTION]

    def told() -> list[int]:
        stream = cache.generate(prompt, max_tokens=8)
        tokens = list(stream)
        assert cache.keeper is not None
        cache.keeper.settle()
        return tokens

    for _ in range(2):
        told()
    assert told() == list(cache.generate(prompt, max_tokens=8, linker="full"))


def test_what_stands_in_its_context_is_left_alone(cache: ChunkCache) -> None:
    for _ in range(4):
        asked(cache, *DOCUMENT)
    assert cache.refining is not None and cache.refining.captured == 0


def test_a_chunk_that_is_always_elsewhere_is_due_less_and_less(cache: ChunkCache) -> None:
    chunks = make_chunks(*range(20, 52), seed=11)
    list(cache.ingest(SYSTEM, chunks))
    for before in chunks:
        asked(cache, before, DOCUMENT[1])
    assert cache.refining is not None and cache.refining.captured == 4, "at the 2nd, 6th, 14th and 30th"
    assert len(contexts(cache, DOCUMENT[1])) == 5 <= VARIANTS


def plan_of(cache: ChunkCache, *chunks: Chunk) -> Plan:
    return plan_prompt([SYSTEM, *chunks, QUESTION], cache.engine.spec.fingerprint, cache.store)


def test_a_prompt_has_few_computed_and_none_that_are_short(cache: ChunkCache) -> None:
    short, chunks = make_chunks(*[LEAST_TOKENS - 1] * 4, seed=21), make_chunks(*[20] * 30, seed=22)
    for one in (*short, *chunks):  # each alone, so behind any other it is out of its context
        list(cache.ingest(SYSTEM, [one]))
    plan = plan_of(cache, *chunks[:2], *short, *chunks[2:])
    refining = Refining(1)
    first, second = refining.wanted(plan), refining.wanted(plan)
    assert len(first) == len(second) == AT_ONCE
    assert not first & second, "the others are due next"
    assert not (first | second) & set(range(2, 6))


def test_a_copy_counts_once(cache: ChunkCache) -> None:
    refining, plan = Refining(2), plan_of(cache, OTHER[0], DOCUMENT[2], OTHER[1], DOCUMENT[2])
    assert refining.wanted(plan) == set()
    assert len(refining.wanted(plan)) >= 1


def test_of_prompts_that_wait_the_newest_is_looked_at() -> None:
    refining = Refining(2)
    assert refining.ask([SYSTEM], 1)
    assert not refining.ask([QUESTION], 2)
    assert refining.take() == ([QUESTION], 2)
    assert refining.take() is None
    assert [refining.ask([SYSTEM], 3) for _ in range(MOST_WAITING + 2)] == [True, *[False] * MOST_WAITING, True]


def test_what_prompts_lack_goes_first(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "is_urgent", True)
            asked(cache, OTHER[0], DOCUMENT[2])
    assert cache.refining is not None and cache.refining.captured == 0
    keeper = Keeper()
    assert not keeper.is_urgent
    with keeper.answering():
        keeper.later(list)
        keeper.later(list)
        assert keeper.is_urgent
    keeper.close()


def test_a_full_disk_is_no_room(tmp_path: Path) -> None:
    store = open_store(tmp_path, ram_bytes=0, disk_bytes=1 << 30, codec="raw", disk_floor=1 << 60)
    assert not store.tiers()[-1].has_room(1)
    assert open_store(tmp_path, ram_bytes=0, disk_bytes=1 << 30, codec="raw").tiers()[-1].has_room(1 << 20)


def test_without_it_nothing_is_computed_again(cache: ChunkCache) -> None:
    cache.refining = None
    before = contexts(cache, DOCUMENT[2])
    for _ in range(4):
        asked(cache, OTHER[0], DOCUMENT[2])
    assert contexts(cache, DOCUMENT[2]) == before


def test_what_was_deleted_meanwhile_does_not_come_back(cache: ChunkCache) -> None:
    assert cache.keeper is not None
    prompt = [SYSTEM, OTHER[0], DOCUMENT[2], QUESTION]
    asked(cache, OTHER[0], DOCUMENT[2])
    with cache.keeper.answering():
        list(cache.generate(prompt, max_tokens=1))
        cache.store.drop_seeing([OTHER[0].hash])
        cache.store.drop_chunk(cache.engine.spec.fingerprint, SYSTEM.hash, OTHER[0].hash)
    cache.keeper.settle()
    assert (OTHER[0].hash,) not in contexts(cache, DOCUMENT[2])


def test_nothing_is_computed_over_a_border_that_may_not_be_seen(cache: ChunkCache) -> None:
    hers: Sequence[Chunk] = [replace(one, border="ann") for one in OTHER]
    list(cache.ingest(SYSTEM, hers))
    for _ in range(4):
        asked(cache, hers[0], DOCUMENT[2])
    assert all(hers[0].hash not in context for context in contexts(cache, DOCUMENT[2]))


def test_nothing_goes_for_it(cache: ChunkCache) -> None:
    (tier,) = cache.store.tiers()
    tier.fit(tier.held())
    before = contexts(cache, DOCUMENT[2])
    for _ in range(4):
        asked(cache, OTHER[0], DOCUMENT[2])
    assert contexts(cache, DOCUMENT[2]) == before
    assert cache.refining is not None and cache.refining.captured == 0


def test_a_capture_that_breaks_is_told_to_nobody(
    cache: ChunkCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cache._patient, "capture", broken)
    for _ in range(3):
        report = asked(cache, OTHER[0], DOCUMENT[2])
    assert report.incidents == []
    assert "not captured in the context of a prompt" in caplog.text


def test_it_remembers_so_many(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    plan = plan_prompt([SYSTEM, *OTHER, *DOCUMENT[1:], QUESTION], cache.engine.spec.fingerprint, cache.store)
    refining = Refining(2)
    for _ in range(3):
        refining.wanted(plan)
    assert len(refining._misfits) == 2
