from __future__ import annotations

from ragcache.types import ids_hash
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
