"""Chunks that stand in many documents."""

from __future__ import annotations

import pytest

from ragcache.cache import ChunkCache
from ragcache.kvgen import ChunkIngest
from ragcache.store import open_store
from ragcache.store.eviction import VARIANTS
from ragcache.types import Chunk, Variant, VariantKey
from tests.ragcache.conftest import SYSTEM, MakeCache
from tests.tiny import make_chunks

(NOTICE,) = make_chunks(14, seed=9)


def document(number: int) -> list[Chunk]:
    first, last = make_chunks(11, 12, seed=20 + number)
    return [first, NOTICE, last]


def ingested(cache: ChunkCache, count: int) -> list[list[Variant]]:
    return [list(cache.ingest(SYSTEM, document(number))) for number in range(count)]


def notices(cache: ChunkIngest) -> set[VariantKey]:
    family = VariantKey(cache.engine.spec.fingerprint, SYSTEM.hash, (), NOTICE.hash).family
    return {info.key for info in cache.store.variants(family)}


def test_boilerplate_is_computed_as_often_as_it_is_kept(make_cache: MakeCache) -> None:
    """Then a variant of another document serves, for the chunk and for those behind it."""
    cache = make_cache()
    made = ingested(cache, 3 * VARIANTS)
    assert notices(cache) == {variants[1].key for variants in made[:VARIANTS]}
    assert {stats.displaced for stats in cache.store.stats()} == {0}
    for number, (first, notice, last) in enumerate(made):
        assert [variant.ids for variant in (first, notice, last)] == [chunk.ids for chunk in document(number)]
        assert notice.key in notices(cache)
        assert cache.store.get(last.key) is not None
        assert (last.key.history == "") == (number < VARIANTS), "it saw what another document's notice had seen"


@pytest.mark.parametrize("most", [1, 3])
def test_it_is_computed_as_often_as_the_store_was_told_to_keep_it(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Its lead too, unless there is room for one alone: that would take the other's place."""
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 1)
    cache = ChunkIngest(make_cache().engine, open_store(codec="raw", variants=most))
    for number in range(5):
        list(cache.ingest(SYSTEM, document(number)))
    found = notices(cache)
    assert len(found) == most
    assert any(not key.context for key in found) == (most > 1)
    assert {stats.displaced for stats in cache.store.stats()} == {0}
    before = {key.digest for key in found}
    list(cache.ingest(SYSTEM, [NOTICE, *make_chunks(9, seed=3)]))  # it leads this one
    assert {key.digest for key in notices(cache)} == before


def test_the_variant_of_a_document_that_comes_again_serves_it(make_cache: MakeCache) -> None:
    cache = make_cache()
    before = ingested(cache, VARIANTS)
    assert [[variant.key for variant in one] for one in ingested(cache, VARIANTS)] == [
        [variant.key for variant in one] for one in before
    ]


def test_the_lead_of_boilerplate_is_computed_once_and_stays(
    make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make_cache()
    ingested(cache, VARIANTS)
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 1)
    lead = VariantKey(cache.engine.spec.fingerprint, SYSTEM.hash, (), NOTICE.hash)
    captured: list[VariantKey] = []
    for number in range(VARIANTS, VARIANTS + 4):
        captured += [
            variant.key for variant in cache.ingest(SYSTEM, document(number)) if variant.key.chunk == lead.chunk
        ]
    assert captured.count(lead) == 4, "each document has one"
    assert lead in notices(cache)
    assert {stats.displaced for stats in cache.store.stats()} == {1}


def test_a_document_that_begins_with_it_has_its_exact_variant(make_cache: MakeCache) -> None:
    cache = make_cache()
    ingested(cache, VARIANTS)
    first, _ = cache.ingest(SYSTEM, [NOTICE, *make_chunks(9, seed=3)])
    assert first.key.context == ()
    assert first.key in notices(cache)


def test_what_opens_a_document_is_stored_once_and_seen_by_its_first_chunks(make_cache: MakeCache) -> None:
    """It is computed behind System and what opens with it alone, whatever stands before it in its own document."""
    cache, own, near = make_cache(), make_chunks(11, 12, 13, 9, seed=3), make_chunks(7, 8, 9, seed=4)
    list(cache.ingest(SYSTEM, near))
    first, second, *rest = cache.ingest(SYSTEM, own, near[1:])
    assert [one.key.context for one in (first, second)] == [(), (near[1].hash,)]
    context = [one.hash for one in (*near[1:], *own)]
    for place, variant in enumerate(rest):
        assert variant.key.context == tuple(context[max(0, place - 1) : place + 2])
        assert cache.store.get(variant.key) is not None
        assert set(variant.lineage.seen) <= set(context)
    assert near[1].hash in rest[-1].lineage.seen, "what was computed over it"
    again = list(cache.ingest(SYSTEM, make_chunks(10, seed=5), near[1:]))
    assert len(again) == 1, "and what opened it is there"


def test_what_fits_nowhere_opens_nothing(make_cache: MakeCache) -> None:
    cache, (own,), (near,) = make_cache(), make_chunks(11, seed=3), make_chunks(7, seed=4)
    (long,) = make_chunks(cache.engine.spec.max_tokens, seed=6)
    *_, last = cache.ingest(SYSTEM, [own], [long, near])
    assert last.key.context == (near.hash,)


def test_what_leaves_no_room_for_a_document_opens_less_of_it(make_cache: MakeCache) -> None:
    cache, near = make_cache(), make_chunks(7, 8, seed=4)
    room = cache.engine.spec.max_tokens - len(SYSTEM)
    for length, context in ((room - 15, near), (room - 8, near[1:]), (room, [])):
        *_, first = cache.ingest(SYSTEM, make_chunks(length, seed=length), near)
        assert first.key.context == tuple(one.hash for one in context)


def test_chunks_that_are_captured_alone_open_with_nothing(make_cache: MakeCache) -> None:
    (own,), near = make_chunks(11, seed=3), make_chunks(7, 8, seed=4)
    alone = ChunkIngest(make_cache().engine, open_store(codec="raw"), context_chunks=0)
    (only,) = alone.ingest(SYSTEM, [own], near)
    assert only.key.context == ()
