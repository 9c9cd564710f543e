"""Texts that go take all KV with them that they had a part in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragcache.store import DiskTier
from ragcache.store.base import ELSEWHERE
from ragcache.types import Lineage, Pass, Span, digest_of, ids_hash
from tests.ragcache.store.conftest import StoreOfKind, build_variant


def test_all_variants_of_a_chunk_go_and_no_others(stores: StoreOfKind) -> None:
    store = stores.open()
    for context in ((), ("c0",), ("c0", "c1")):
        store.put(build_variant((1, 2), context=context))
    others = [build_variant((1, 3)), build_variant((1, 2), fingerprint="engine-b")]
    for other in others:
        store.put(other)
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2))) == 3
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2))) == 0
    assert all(store.get(other.key) for other in others)
    assert sum(stats.entries for stats in store.stats()) == len(others) * len(store.stats())


def test_all_variants_of_a_chunk_go_behind_whatever_system(stores: StoreOfKind) -> None:
    """However many, and no others: what is behind no System is another thing."""
    store = stores.open()
    others = [
        build_variant((1, 2), context=(), system=""),
        build_variant((1, 2), border="ann"),
        build_variant((1, 3), system="s1"),
        build_variant((1, 2), system="s1", fingerprint="engine-b"),
    ]
    for system in (*(f"s{place}" for place in range(2 * ELSEWHERE + 3)), "system"):
        store.put(build_variant((1, 2), system=system, plain=True))
    for other in others:
        store.put(other)
    gone = 2 * ELSEWHERE + 4
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == gone
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 0
    assert all(store.get(other.key) for other in others)
    assert sum(stats.entries for stats in store.stats()) == len(others) * len(store.stats())


def test_what_cannot_be_read_hides_nothing(root: Path) -> None:
    """All that was used last cannot be read, and goes like the rest."""
    store, variants = DiskTier(root, None, "raw"), [build_variant((1, 2), system=f"s{place}") for place in range(30)]
    for variant in variants:
        store.put(variant)
    for variant in variants[-2 * ELSEWHERE :]:
        (path,) = root.glob(f"*/*/{variant.key.family}/*.kv")
        path.write_bytes(path.read_bytes()[:50])
    again = DiskTier(root, None, "raw")
    assert again.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == len(variants)
    assert not list(root.glob("*/*/*/*.kv"))
    again.check_integrity()


def test_what_a_chunk_had_a_part_in_goes_and_nothing_else(stores: StoreOfKind) -> None:
    """Also where it is no part of the address: what an entry was computed behind had seen it."""
    store = stores.open()
    directly, plainly = build_variant((1,), context=("c0", "gone")), build_variant((2,), context=("gone",), plain=True)
    passes = (Pass(Span(0, 1), ("c0-behind-gone",)),)
    key = replace(directly.key, context=("c0",), chunk=ids_hash((3,)), history=digest_of("c0-behind-gone"))
    through = replace(build_variant((3,), context=("c0",)), key=key, lineage=Lineage(passes, ("gone", "c0")))
    untold = build_variant((6,), context=("c0", "c1"))  # its lineage does not tell all
    gone = {directly.key, plainly.key, through.key, untold.key}
    others = [build_variant((4,), context=()), build_variant((5,), context=("c0", "c1"), plain=True)]
    for variant in (directly, plainly, through, untold, *others):
        store.put(variant)
    assert set(store.seeing({"gone", "unknown"})) == gone
    assert set(store.drop_seeing({"gone", "unknown"})) == gone
    assert store.drop_seeing({"gone", "unknown"}) == []
    assert all(store.get(one.key) for one in others)
    store.check_integrity()
