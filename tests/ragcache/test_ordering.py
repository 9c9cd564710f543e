from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from ragcache.kvgen import KVGen
from ragcache.ordering import MOST, least_repaired
from ragcache.planning import plan_prompt
from ragcache.store import KVStore, open_store
from ragcache.types import Chunk, System
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(7), make_question(5)
CHUNKS = make_chunks(10, 12, 9, 8, 11, 7)
A, B, C, D, E, F = CHUNKS


@pytest.fixture
def store() -> KVStore:
    return open_store(codec="raw")


def keep(store: KVStore, tiny: Tiny, *chunks: Chunk, border: str = "") -> None:
    kvgen = KVGen(tiny.engine, 3)
    system = System(SYSTEM.ids, border)
    for variant in kvgen.document(kvgen.system(system), [Chunk(one.ids, border) for one in chunks]):
        store.put(variant)


def ordered(store: KVStore, tiny: Tiny, *chunks: Chunk) -> tuple[Chunk, ...]:
    order = least_repaired(SYSTEM, chunks, tiny.engine.spec.fingerprint, store, [])
    assert sorted(order) == list(range(len(chunks)))
    return tuple(chunks[place] for place in order)


def expected(store: KVStore, tiny: Tiny, *chunks: Chunk) -> float:
    """Tokens that Cache-Craft's share repairs, by the real plan; what saw no context counts whole."""
    plan = plan_prompt([SYSTEM, *chunks, QUESTION], tiny.engine.spec.fingerprint, store)
    total = 0.0
    for chunk in plan.chunks:
        best = chunk.candidates[0] if chunk.candidates else None
        alone = best is not None and not best.info.key.context and chunk.index > 0
        share = 1.0 if best is None or alone else 0.0 if best.unchanged else best.reuse.cfo()
        total += share * len(chunk.segment)
    return total


@pytest.mark.parametrize("asked", list(permutations((A, B, C))))
def test_a_document_stands_as_it_was_computed(store: KVStore, tiny: Tiny, asked: tuple[Chunk, ...]) -> None:
    keep(store, tiny, A, B, C)
    assert ordered(store, tiny, *asked) == (A, B, C)
    plan = plan_prompt([SYSTEM, *ordered(store, tiny, *asked), QUESTION], tiny.engine.spec.fingerprint, store)
    assert plan.exact_until == plan.question


def test_what_is_equally_good_stands_as_it_stood(store: KVStore, tiny: Tiny) -> None:
    assert ordered(store, tiny, C, A, B) == (C, A, B), "nothing is cached"
    keep(store, tiny, A)
    keep(store, tiny, B)
    assert ordered(store, tiny, B, A) == (B, A)
    assert ordered(store, tiny, A, B) == (A, B)


def test_the_longest_exact_front_is_taken_of_equal_ones(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B)
    assert ordered(store, tiny, C, A, B) == (A, B, C), "C is computed wherever it stands"


def test_no_order_that_is_found_repairs_more_than_the_given_one(store: KVStore, tiny: Tiny) -> None:
    random = np.random.default_rng(3)
    better = 0
    for _ in range(12):
        keep(store, tiny, *(CHUNKS[place] for place in random.permutation(6)[: random.integers(1, 5)]))
        asked = [CHUNKS[place] for place in random.permutation(6)[: random.integers(2, 7)]]
        before, after = expected(store, tiny, *asked), expected(store, tiny, *ordered(store, tiny, *asked))
        assert after <= before + 1e-9
        better += after < before - 1e-9
    assert better > 2


def test_nothing_of_another_border_counts(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B, C, border="someone")
    assert ordered(store, tiny, C, B, A) == (C, B, A)


def test_what_the_store_cannot_tell_is_told(tiny: Tiny, tmp_path: Path) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    keep(store, tiny, A, B)
    for path in tmp_path.rglob("*.kv"):
        path.write_bytes(path.read_bytes()[:40])
    incidents: list[str] = []
    assert least_repaired(
        SYSTEM, (B, A), tiny.engine.spec.fingerprint, open_store(tmp_path, ram_bytes=0, codec="raw"), incidents
    ) == [0, 1]
    assert any("cache entry not used" in one for one in incidents), incidents


def test_copies_and_many(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B)
    assert ordered(store, tiny, B, A, B, A)[:2] == (A, B)
    many = make_chunks(*[4] * (MOST + 6), seed=5)
    keep(store, tiny, many[1], many[0])
    assert ordered(store, tiny, *many) == (many[1], many[0], *many[2:])


def test_of_many_variants_those_that_fit_are_tried(tiny: Tiny) -> None:
    store = open_store(codec="raw", variants=64)
    for others in permutations((B, C, D, E), 2):
        keep(store, tiny, *others, F)
    keep(store, tiny, A, F)
    for others in permutations((B, C, D, E), 3):
        keep(store, tiny, *others, F)
    assert ordered(store, tiny, F, A) == (A, F)
