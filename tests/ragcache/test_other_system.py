"""KV that was computed behind another System segment: an approximate stand-in, until a chunk has its own by use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.vllm.block_names import link_name
from ragcache.keeping import Keeper
from ragcache.kvgen import RETRY
from ragcache.linking import make_linker
from ragcache.planning import Plan, plan_prompt
from ragcache.report import COMPUTED, OTHER, Report
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, Text, VariantKey
from tests.tiny import Tiny, assert_close, make_chunks, make_question, make_system, stock

SYSTEM, OTHERS, QUESTION = make_system(), make_system(9), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)

MakeCache = Callable[..., ChunkCache]


def behind(system: System, *middle: Segment) -> list[Segment]:
    return [system, *middle, QUESTION]


def planned(cache: ChunkCache, segments: Sequence[Segment], *, others: bool = True) -> Plan:
    return plan_prompt(segments, cache.engine.spec.fingerprint, cache.store, others=others)


def answered(cache: ChunkCache, segments: Sequence[Segment]) -> Report:
    stream = cache.generate(segments, max_tokens=2)
    list(stream)
    return stream.report


def told(report: Report) -> list[tuple[str, str]]:
    return [(chunk.tier, chunk.system) for chunk in report.chunks]


def keys(cache: ChunkCache, system: System, *chunks: Chunk) -> list[set[VariantKey]]:
    leads = [VariantKey(cache.engine.spec.fingerprint, system.hash, (), chunk.hash) for chunk in chunks]
    return [{info.key for info in cache.store.variants(lead.family)} for lead in leads]


@pytest.mark.parametrize("middle", [DOCUMENT, [DOCUMENT[2], DOCUMENT[0]]])
def test_it_serves_and_is_never_exact(make_cache: MakeCache, middle: Sequence[Chunk]) -> None:
    """Not even behind the same chunks, where it is the first to be chosen."""
    cache = make_cache(*DOCUMENT)
    found, own = planned(cache, behind(OTHERS, *middle)), planned(cache, behind(SYSTEM, *middle))
    for chunk, same in zip(found.chunks, own.chunks, strict=True):
        assert [one.info.key for one in chunk.candidates] == [one.info.key for one in same.candidates]
        assert all(one.system_gone and not one.unchanged and not one.exact for one in chunk.candidates)
        assert chunk.placed(chunk.candidates[0]).system_gone
        assert not any(one.system_gone for one in same.candidates)
    assert found.exact_until == found.head == len(OTHERS)
    assert not any(chunk.candidates for chunk in planned(cache, behind(OTHERS, *middle), others=False).chunks)


def test_a_chunk_that_has_its_own_is_served_by_that_alone(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT)
    list(cache.ingest(OTHERS, [DOCUMENT[3], DOCUMENT[1]]))
    own = planned(cache, behind(OTHERS, *DOCUMENT)).chunks[1].candidates
    assert [(one.info.key.system, one.info.key.context) for one in own] == [(OTHERS.hash, (DOCUMENT[3].hash,))]
    assert not own[0].system_gone


def test_a_prompt_without_system_neither_gives_nor_takes(make_cache: MakeCache) -> None:
    """The KV of what stood first in a prompt is another thing; so is that of a System segment of the same tokens."""
    cache = make_cache(*DOCUMENT[:2], keep_missed=True)
    alone = [*DOCUMENT[2:], QUESTION]
    assert not any(chunk.candidates for chunk in planned(cache, [*DOCUMENT[:2], QUESTION]).chunks)
    answered(cache, alone)
    assert all(chunk.candidates for chunk in planned(cache, alone).chunks)
    namesake = Chunk(SYSTEM.ids)
    assert not any(chunk.candidates for chunk in planned(cache, behind(OTHERS, *DOCUMENT[2:], namesake)).chunks)


@pytest.mark.parametrize("border", ["ann", "bob", ""])
def test_a_border_is_not_crossed(make_cache: MakeCache, border: str) -> None:
    cache, mine = make_cache(), [replace(chunk, border="ann") for chunk in DOCUMENT]
    list(cache.ingest(SYSTEM, mine))
    for system in (OTHERS, replace(OTHERS, border=border)):
        asked = behind(system, *(replace(chunk, border=border) for chunk in DOCUMENT))
        assert all(bool(chunk.candidates) is (border == "ann") for chunk in planned(cache, asked).chunks)


def test_attention_to_a_system_that_is_gone_is_lost(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT)
    for place, chunk in enumerate(planned(cache, behind(OTHERS, *DOCUMENT)).chunks):
        placed = chunk.placed(chunk.candidates[0])
        assert all(one >= 0 for one in placed.reuse.places), "all of its context is there"
        np.testing.assert_array_equal(placed.lost_attention(), placed.profile.inter[0])
        if place:
            assert not replace(placed, system_gone=False).lost_attention().any()
    moved = planned(cache, behind(OTHERS, DOCUMENT[0], DOCUMENT[2])).chunks[1]
    inter = moved.candidates[0].info.profile.inter
    np.testing.assert_allclose(moved.placed(moved.candidates[0]).lost_attention(), inter[0] + inter[2])


@pytest.mark.parametrize("linker", ["cci:ratio=1", "auto:ratio=1", "query:ratio=1", "random:ratio=1"])
def test_a_linker_may_mend_all_of_it(make_cache: MakeCache, tiny: Tiny, linker: str) -> None:
    cache, segments = make_cache(*DOCUMENT), behind(OTHERS, *DOCUMENT)
    naive, mended = (prefill_prompt(cache, segments, linker=one) for one in ("naive", linker))
    expected = stock(tiny.model, mended.plan.ids).logits[-1]
    assert [chunk.repaired for chunk in mended.report.chunks] == [len(chunk) for chunk in DOCUMENT]
    assert_close(mended.logits, expected)
    assert (naive.logits - expected).abs().max() > 1e-3, "or this shows nothing"


@pytest.mark.parametrize("keeper", [None, Keeper])
def test_its_own_is_captured_by_use(make_cache: MakeCache, keeper: Callable[[], Keeper] | None) -> None:
    """As if it had been missing; the report says that it was not."""
    keeps = keeper() if keeper else None
    cache, asked = make_cache(*DOCUMENT, keep_missed=True, keeper=keeps), behind(OTHERS, *DOCUMENT[:2], STRANGER)
    cold = make_cache(keep_missed=True)
    first = answered(cache, asked)
    assert told(first) == [("ram", OTHER), ("ram", OTHER), (COMPUTED, "")]
    assert (first.reused, [chunk.exact for chunk in first.chunks]) == (71, [False] * 3)
    assert told(answered(cold, asked)) == [(COMPUTED, "")] * 3
    if keeps:
        keeps.settle()
    second = answered(cache, asked)
    assert told(second) == [("ram", "")] * 3
    assert [chunk.exact for chunk in second.chunks] == [True] * 3
    assert keys(cache, OTHERS, *DOCUMENT, STRANGER) == keys(cold, OTHERS, *DOCUMENT, STRANGER)
    assert [len(found) for found in keys(cache, OTHERS, *DOCUMENT, STRANGER)] == [1, 1, 0, 0, 1]
    assert told(answered(cache, behind(SYSTEM, *DOCUMENT[:2]))) == [("ram", "")] * 2, "what there was stays"


def test_what_cannot_be_kept_is_served_by_others_and_not_captured_for_each_prompt(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = ChunkCache(tiny.engine, open_store(tmp_path, ram_bytes=0, codec="raw"))
    list(filled.ingest(SYSTEM, DOCUMENT[:1]))
    filled.system_variant(OTHERS)
    cache = ChunkCache(tiny.engine, open_store(tmp_path, ram_bytes=0, disk_bytes=filled.store.kept.nbytes, codec="raw"))
    for (key,) in (*keys(cache, SYSTEM, DOCUMENT[0]), *({cache.kvgen.system_key(one)} for one in (SYSTEM, OTHERS))):
        cache.store.pin(key)
    tries = []
    for _ in range(RETRY + 2):
        report = answered(cache, behind(OTHERS, DOCUMENT[0]))
        assert told(report) == [("disk", OTHER)]
        tries.append("keep" in report.seconds)
    assert tries == [True, *[False] * (RETRY - 1), True, False]


def test_links_of_both_are_named_apart(make_cache: MakeCache) -> None:
    cache, linker = make_cache(*DOCUMENT), make_linker("naive")
    asked = behind(OTHERS, Text((1, 2)), *DOCUMENT)
    names = {link_name(planned(cache, asked, others=False), linker, 0).whole}
    names.add(link_name(planned(cache, asked), linker, 0).whole)
    list(cache.ingest(OTHERS, DOCUMENT))
    names.add(link_name(planned(cache, asked), linker, 0).whole)
    assert len(names) == 3, "computed, another's, its own"


def test_what_no_prompt_holds_is_never_served(make_cache: MakeCache) -> None:
    """KV is found by the very tokens of a chunk: a text that is deleted comes back with whoever has it."""
    cache = make_cache(*DOCUMENT, keep_missed=True)
    answered(cache, behind(OTHERS, *DOCUMENT))
    for system in (SYSTEM, OTHERS):
        cache.store.drop_chunk(cache.engine.spec.fingerprint, system.hash, DOCUMENT[1].hash)
    cache.store.drop_seeing([DOCUMENT[1].hash])
    for system in (SYSTEM, OTHERS, make_system(4)):
        found = planned(cache, behind(system, *DOCUMENT)).chunks
        assert [bool(chunk.candidates) for chunk in found] == [True, False, False, False]
