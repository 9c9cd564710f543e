"""A chunk's variants behind other System segments: which of them a store tells of, and of none that are not its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragcache.address import behind_another_system
from ragcache.store import DiskTier
from ragcache.store.base import ELSEWHERE, KVStore
from ragcache.store.findings import Flaw
from ragcache.store.index import ELSEWHERE as QUERY
from ragcache.types import Variant, VariantKey
from tests.ragcache.store.conftest import StoreOfKind, build_variant
from tests.ragcache.store.folders import altered, told


def behind(system: str, ids: tuple[int, ...] = (5, 6, 7), **options: Any) -> Variant:
    return build_variant(ids, system=system, **{"plain": True, **options})


KEY = behind("mine").key
BORDERED = behind("theirs", border="ann")
STRANGERS = {
    "its own System": behind("mine"),
    "no System": behind("", context=()),
    "another engine": behind("theirs", fingerprint="engine-b"),
    "another chunk": behind("theirs", (5, 6, 8)),
    "a border": BORDERED,
}


def found(store: KVStore, key: VariantKey = KEY) -> set[VariantKey]:
    keys = [info.key for info in store.elsewhere(key)]
    assert len(keys) == len(set(keys))
    return set(keys)


def test_all_variants_behind_other_systems_are_told(stores: StoreOfKind) -> None:
    store = stores.open()
    others = [behind(system, context=context) for system in "ab" for context in ((), ("c0",))]
    for variant in others:
        store.put(variant)
    assert found(store) == {variant.key for variant in others}
    assert found(store, others[0].key) == {variant.key for variant in others[2:]}
    for info in store.elsewhere(KEY):
        fetched = store.get(info.key)
        assert fetched is not None
        assert (info.tokens, info.profile.lengths) == (3, fetched.variant.profile.lengths)
        assert (info.tier, info.level) == (store.stats()[0].tier, 0)


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_not(stores: StoreOfKind, name: str) -> None:
    store = stores.open()
    store.put(STRANGERS[name])
    assert found(store) == set()


def test_an_engine_is_known_by_all_of_its_name(stores: StoreOfKind) -> None:
    """The beginning of which names its folder."""
    store, other = stores.open(), behind("theirs", fingerprint="f" * 63 + "a")
    store.put(other)
    assert found(store, replace(KEY, fingerprint="f" * 63 + "b")) == set()
    assert found(store, replace(KEY, fingerprint="f" * 63 + "a")) == {other.key}


@pytest.mark.parametrize("border", ["", "bob", "Ann", "ann2", "%"])
def test_a_border_is_never_crossed(stores: StoreOfKind, border: str) -> None:
    store = stores.open()
    store.put(BORDERED)
    assert found(store, replace(KEY, border=border)) == set()
    assert found(store, replace(KEY, border="ann")) == {BORDERED.key}


def test_those_that_were_used_last_are_looked_at(stores: StoreOfKind) -> None:
    store, others = stores.open(), [behind(f"s{place:02}") for place in range(3 * ELSEWHERE)]
    for variant in (*others, behind("mine"), behind("", context=())):
        store.put(variant)
    store.get(others[0].key)
    store.put(behind("s-last"))  # which writes the use down
    kept = {behind("s-last").key, others[0].key, *(one.key for one in others[2 - ELSEWHERE :])}
    assert found(store) == kept


def test_what_has_gone_is_not_told(stores: StoreOfKind) -> None:
    store, other = stores.open(), behind("theirs")
    store.put(other)
    assert store.delete(other.key)
    assert found(store) == set()


def test_a_bad_file_is_a_flaw(root: Path) -> None:
    store, good, bad = DiskTier(root, None, "raw"), behind("good"), behind("bad")
    for variant in (good, bad):
        store.put(variant)
    (path,) = root.glob(f"*/*/{bad.key.family}/*.kv")
    path.write_bytes(path.read_bytes()[:50])
    flaws: list[Flaw] = []
    again = DiskTier(root, None, "raw")
    assert [info.key for info in again.elsewhere(KEY, flaws)] == [good.key]
    assert [flaw.where for flaw in flaws] == [str(path)]
    again.stats()  # waits for what look-ups leave behind
    assert not path.exists()


def test_the_file_says_whose_it_is(root: Path) -> None:
    """Whatever rows claim: a border that somebody wrote into the index opens nothing."""
    store = DiskTier(root, None, "raw")
    store.put(BORDERED)
    altered(root, "UPDATE entries SET border = ''")
    assert told(root, "SELECT border FROM entries") == [("",)]
    assert store.elsewhere(KEY) == []
    assert not behind_another_system(BORDERED.key, KEY)


def test_a_look_up_sorts_nothing_and_reads_no_other_rows(root: Path) -> None:
    DiskTier(root, None, "raw").put(behind("theirs"))
    values = ("chunk", "", "engine", "engine", "mine", ELSEWHERE)
    (row,) = told(root, f"EXPLAIN QUERY PLAN {QUERY.replace('?', '{!r}').format(*values)}")
    assert row[-1] == "SEARCH entries USING INDEX by_chunk (chunk=? AND border=? AND engine=?)"
