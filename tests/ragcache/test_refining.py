"""Chunks that prompts link out of their context are computed in it, while nobody waits; prompts to come are nearer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from ragcache import refining as module
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.keeping import Keeper
from ragcache.planning import plan_prompt
from ragcache.refining import Refining
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
    cache = ChunkCache(engine, open_store(None, None, None, "raw"), "naive", keeper=keeper)
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
    fresh = ChunkCache(engine, open_store(None, None, None, "raw"), "naive")
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


def test_a_chunk_keeps_few_variants(cache: ChunkCache) -> None:
    chunks = make_chunks(*range(12, 12 + 2 * VARIANTS), seed=11)
    list(cache.ingest(SYSTEM, chunks))
    for before in chunks:
        for _ in range(2):
            asked(cache, before, DOCUMENT[1])
    assert len(contexts(cache, DOCUMENT[1])) == VARIANTS


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
