"""How many variants of a chunk a store keeps when it is told a number, and what others in its folder do to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import ConfigError
from ragcache.store import KVStore, open_store
from ragcache.store.eviction import MOST_VARIANTS, VARIANTS
from ragcache.store.tiered import TieredStore
from ragcache.types import Variant
from tests.ragcache.store.remote.conftest import digests_in, settled

KINDS = ("ram", "disk", "tiered")
Behind = Callable[[int], Variant]


@pytest.fixture
def behind(make_variant: Any) -> Behind:
    """Variants of one chunk by a number; -1 is the one without context."""
    return lambda place: make_variant(context=() if place < 0 else (f"document-{place}",))


def opened(kind: str, root: Path, variants: int, order: str = "lru") -> KVStore:
    ram, folder = (0 if kind == "disk" else None), (None if kind == "ram" else root)
    return open_store(folder, ram_bytes=ram, codec="raw", order=order, variants=variants)


def kept(store: KVStore, behind: Behind) -> list[int]:
    store.check_integrity()
    there = {info.key for info in store.variants(behind(0).key.family)}
    return [place for place in range(-1, 100) if behind(place).key in there]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3, VARIANTS + 4, MOST_VARIANTS])
def test_so_many_stay_as_it_was_told(kind: str, most: int, tmp_path: Path, behind: Behind) -> None:
    store, put = opened(kind, tmp_path, most), most + 3
    for place in range(put):
        store.put(behind(place))
    assert kept(store, behind) == list(range(3, put))
    assert store.most_variants == most
    assert {stats.displaced for stats in store.stats()} == {3}


@pytest.mark.parametrize("kind", KINDS)
def test_of_three_that_goes_which_is_first_in_the_order_of_eviction(kind: str, tmp_path: Path, behind: Behind) -> None:
    store = opened(kind, tmp_path, 3, "lfu")
    for place in range(3):
        store.put(behind(place))
    for place in (0, 0, 0, 2, 2, 1):
        store.get(behind(place).key)
    store.put(behind(3))
    assert kept(store, behind) == [0, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_without_context_and_pinned_ones_stay_where_one_is_kept(
    kind: str, tmp_path: Path, behind: Behind
) -> None:
    store = opened(kind, tmp_path, 1)
    store.put(behind(0))
    store.put(behind(-1))
    assert kept(store, behind) == [-1], "it takes the place of another"
    for place in (1, 2, 3):
        store.put(behind(place))
        assert kept(store, behind) == [-1, place]
    store.pin(behind(3).key)
    for place in (4, 5):
        store.put(behind(place))
    assert kept(store, behind) == [-1, 3, 5]
    store.pin(behind(3).key, pinned=False)
    store.put(behind(6))
    assert kept(store, behind) == [-1, 6]


def test_what_the_disk_declines_serves_from_ram_beside_the_one_without_context(
    tmp_path: Path, make_variant: Any
) -> None:
    """Where one is kept, as where eight are."""
    lead, new = make_variant(context=()), make_variant(context=("a",))
    probe = open_store(tmp_path / "probe", ram_bytes=0, codec="raw")
    probe.put(new)  # the larger one
    for most in (1, VARIANTS):
        store = open_store(
            tmp_path / str(most), disk_bytes=probe.stats()[0].nbytes + 5, codec="raw", order="value", variants=most
        )
        store.put(lead)
        for _ in range(3):
            store.get(lead.key)
        assert not store.put(new)
        assert {info.key for info in store.variants(new.key.family)} == {lead.key, new.key}
        assert store.get(new.key) is not None


def test_a_smaller_number_displaces_at_its_own_puts_alone(tmp_path: Path, behind: Behind) -> None:
    many, few = opened("tiered", tmp_path, 6), opened("tiered", tmp_path, 2)
    for place in range(6):
        many.put(behind(place))
    assert kept(few, behind) == kept(many, behind) == [*range(6)], "it serves whatever is there"
    assert all(few.get(behind(place).key) is not None for place in range(6))
    assert kept(opened("disk", tmp_path, 2), behind) == [*range(6)], "and leaves it there at a start"
    few.put(behind(6))
    assert kept(opened("disk", tmp_path, 6), behind) == kept(few, behind) == [5, 6]
    for place in (7, 8):
        many.put(behind(place))
    assert kept(opened("disk", tmp_path, 2), behind) == [5, 6, 7, 8]
    assert set(kept(many, behind)) >= {5, 6, 7, 8} and len(kept(many, behind)) <= 6
    for store in (many, few):
        assert store.verify() == []


def test_ram_keeps_no_more_than_the_store_was_told_of_what_others_displaced(tmp_path: Path, behind: Behind) -> None:
    store, other = opened("tiered", tmp_path, 3), opened("disk", tmp_path, 3)
    for place in range(3):
        store.put(behind(place))
    for place in range(10, 13):
        other.put(behind(place))
    assert kept(store, behind) == [10, 11, 12]
    assert isinstance(store, TieredStore) and store.stats()[0].entries == 0


@pytest.mark.parametrize("most", [2, VARIANTS + 12])
def test_a_bucket_has_so_many_of_a_chunk(tmp_path: Path, behind: Behind, most: int) -> None:
    """And another machine, without any of them, sees them all."""
    url = f"file://{tmp_path}/bucket"
    stores = [
        open_store(tmp_path / name, ram_bytes=0, codec="raw", remote=url, variants=most) for name in ("one", "two")
    ]
    for place in range(-1, most + 2):
        stores[0].put(behind(place))
        settled(stores[0])  # type: ignore[arg-type]
    expected = [-1, *range(3, most + 2)]
    assert digests_in(stores[0]) == {behind(place).key.digest for place in expected}  # type: ignore[arg-type]
    found = {info.key for info in stores[1].variants(behind(0).key.family)}
    assert found == {behind(place).key for place in expected}
    assert {store.most_variants for store in stores} == {most}
    for store in stores:
        store._courier.close()  # type: ignore[attr-defined]
        store._bucket.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [0, -1, MOST_VARIANTS + 1, 8.0, "8", None, True])
def test_a_number_that_cannot_be_is_refused_with_its_bounds(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^variants is {wrong!r}: keep 1 to 64 of a chunk$"):
        open_store(tmp_path / "kv", codec="raw", variants=wrong)
    assert not (tmp_path / "kv").exists()
