"""KV that was computed behind another System segment, linked inside vLLM as on the torch engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ragcache.cache import ChunkCache
from ragcache.report import COMPUTED, OTHER, PREFIX, Report
from ragcache.store import open_store
from ragcache.types import Segment, System, VariantKey
from tests.equivalence.vllm.conftest import CONTEXT, OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55)
(STRANGER,) = make_chunks(30, seed=9)
MIDDLES: dict[str, Sequence[Segment]] = {
    "its own order": DOCUMENT,
    "another order, and a stranger": [DOCUMENT[2], DOCUMENT[0], STRANGER, DOCUMENT[3]],
}


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair("llama", block_size=32) as opened:
        list(opened.torch.ingest(SYSTEM, DOCUMENT))
        yield opened


def told(report: Report) -> list[tuple[int, int, int, str]]:
    return [(chunk.reused, chunk.repaired, chunk.computed, chunk.system) for chunk in report.chunks]


def exact(report: Report) -> list[bool]:
    return [chunk.exact for chunk in report.chunks]


@pytest.mark.parametrize("name", MIDDLES)
@pytest.mark.parametrize("linker", ["naive", "auto", "cci", "query", "auto:ratio=1"])
def test_the_same_tokens_for_the_same_plan(pair: Pair, linker: str, name: str) -> None:
    drain(pair.engine)
    pair.engine.forget_prefixes()
    segments = [make_system(33), *MIDDLES[name], QUESTION]
    ours, theirs = (cache.generate(segments, max_tokens=12, linker=linker) for cache in (pair.vllm, pair.torch))
    assert list(ours) == list(theirs)
    assert told(ours.report) == told(theirs.report)
    assert exact(ours.report) == exact(theirs.report) == [False] * 4
    assert [chunk.system for chunk in ours.report.chunks] == [
        "" if chunk is STRANGER else OTHER for chunk in MIDDLES[name]
    ]
    assert ours.report.incidents == theirs.report.incidents == []


def test_it_never_answers_who_asks_for_a_plain_prefill(pair: Pair) -> None:
    segments = [make_system(37), *DOCUMENT, make_question(40)]
    linked, plain = (list(pair.torch.generate(segments, max_tokens=60, linker=linker)) for linker in ("naive", "full"))
    assert linked != plain, "or this shows nothing"
    for linker, expected in (("naive", linked), ("full", plain), ("naive", linked)):
        assert list(pair.vllm.generate(segments, max_tokens=60, linker=linker)) == expected


def keys(cache: ChunkCache, system: System) -> list[set[VariantKey]]:
    leads = [VariantKey(cache.engine.spec.fingerprint, system.hash, (), chunk.hash) for chunk in DOCUMENT]
    return [{info.key for info in cache.store.variants(lead.family)} for lead in leads]


def test_its_own_is_captured_by_use(pair: Pair) -> None:
    """Also where vLLM's prefix cache has the link by then, which is of the other System's KV still."""
    system = make_system(29)
    stores = [open_store(codec="raw") for _ in range(2)]
    ours = ChunkCache(pair.engine, stores[0], "naive", context_chunks=CONTEXT, keep_missed=False)
    theirs = ChunkCache(pair.torch.engine, stores[1], "naive", context_chunks=CONTEXT)
    list(ChunkCache(pair.torch.engine, stores[0], context_chunks=CONTEXT).ingest(SYSTEM, DOCUMENT))
    list(theirs.ingest(SYSTEM, DOCUMENT))
    segments = [system, *DOCUMENT, make_question(40)]
    pair.engine.use_store(stores[0])
    try:
        drain(pair.engine)
        pair.engine.forget_prefixes()
        list(ours.generate(segments, max_tokens=3))
        ours.keep_missed = True
        linked, first = (cache.generate(segments, max_tokens=3) for cache in (ours, theirs))
        assert list(linked) == list(first)
        assert [chunk.system for chunk in linked.report.chunks] == [OTHER] * len(DOCUMENT)
        assert linked.report.chunks[0].tier == PREFIX
        assert keys(ours, system) == keys(theirs, system)
        assert all(keys(ours, system))
        for asked in (segments, [system, *reversed(DOCUMENT), QUESTION]):
            one, other = ours.generate(asked, max_tokens=5), theirs.generate(asked, max_tokens=5)
            assert list(one) == list(other)
            assert told(one.report) == told(other.report)
            assert {chunk.system for chunk in one.report.chunks} == {""}
            assert COMPUTED not in {chunk.tier for chunk in one.report.chunks[:-1]}
    finally:
        pair.engine.use_store(pair.vllm.store)
