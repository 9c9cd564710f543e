"""Texts that go take all KV with them that they had a part in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragcache.address import group_of
from ragcache.store import DiskTier, index_making
from ragcache.store.base import ELSEWHERE
from ragcache.store.codec import open_codec
from ragcache.store.entry import pack
from ragcache.store.index import Contents
from ragcache.store.layout import FolderLayout
from ragcache.types import Lineage, Pass, Span, digest_of, ids_hash
from tests.ragcache.store.conftest import StoreOfKind, build_variant
from tests.ragcache.store.folders import altered, opened, told


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


def test_families_go_but_for_what_stays(stores: StoreOfKind) -> None:
    store = stores.open()
    gone = [build_variant((1, 2), context=context) for context in ((), ("c0",))]
    left = [build_variant((1, 2), context=("c1",)), build_variant((1, 2), border="ann"), build_variant((1, 3))]
    for variant in (*gone, *left):
        store.put(variant)
    families = {gone[0].key.family: {left[0].key.digest}, build_variant((5, 5)).key.family: set[str]()}
    assert store.drop_families(families) == 2
    assert store.drop_families(families) == 0
    assert [store.get(one.key) is not None for one in (*gone, *left)] == [False] * 2 + [True] * 3
    store.check_integrity()


def test_all_variants_of_a_chunk_go_behind_whatever_system(stores: StoreOfKind) -> None:
    """And of whatever engine; however many, and no others: what is behind no System is another thing."""
    store = stores.open()
    others = [
        build_variant((1, 2), context=(), system=""),
        build_variant((1, 2), border="ann"),
        build_variant((1, 3), system="s1"),
        build_variant((1, 2), context=(), system="", fingerprint="engine-b"),
        build_variant((1, 2), border="ann", fingerprint="engine-b"),
    ]
    for engine in ("engine-b", "engine-c"):
        store.put(build_variant((1, 2), system="s1", fingerprint=engine))
    for system in (*(f"s{place}" for place in range(2 * ELSEWHERE + 3)), "system"):
        store.put(build_variant((1, 2), system=system, plain=True))
    for other in others:
        store.put(other)
    gone = 2 * ELSEWHERE + 4 + 2
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == gone
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 0
    assert all(store.get(other.key) for other in others)
    assert sum(stats.entries for stats in store.stats()) == len(others) * len(store.stats())


def test_all_variants_of_a_chunk_go_within_a_group_of_borders(stores: StoreOfKind) -> None:
    """Of whatever engine, and no others; nothing is within a group but what is within its borders."""
    store = stores.open()
    borders = ("club-ann", "club-ben-2", "club-")
    gone = [build_variant((1, 2), border=one, system=system) for one in borders for system in ("system", "another")]
    gone.append(build_variant((1, 2), border="club-ann", fingerprint="engine-b"))
    others = [
        *(build_variant((1, 2), border=one) for one in ("", "club", "clubs-ann", "key-ann")),
        build_variant((1, 3), border="club-ann"),
        build_variant((1, 2), context=(), border="club-ann", system=""),
    ]
    for variant in (*gone, *others):
        store.put(variant)

    def dropped() -> int:
        group = group_of("club-ann")
        return store.drop_chunk("engine-a", "system", ids_hash((1, 2)), "club-ann", elsewhere=True, group=group)

    assert dropped() == len(gone)
    assert dropped() == 0
    assert [store.get(one.key) is not None for one in (*gone, *others)] == [False] * len(gone) + [True] * len(others)
    store.check_integrity()


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


def test_what_could_not_be_read_as_the_index_was_made_goes_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the System that is named, where look-ups find it."""
    store = opened(root)
    for system in ("system", "another"):
        store.put(build_variant((1, 2), system=system))

    def failing(path: Path) -> Any:
        raise OSError(5, "the disk fails", str(path))

    (root / "index.sqlite").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(index_making, "read_fields", failing)
        store = opened(root)
    assert told(root, "SELECT count(*) FROM entries WHERE chunk IS NULL") == [(2,)]
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 1
    store._index.renew()
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 1
    assert not list(root.glob("*/*/*/*.kv"))


@pytest.mark.parametrize("context", ["x", None, "[3]", "{}", '["a"]', "[" * 100_000])
def test_a_row_that_tells_of_none_or_of_another_hides_no_file(root: Path, context: str | None) -> None:
    """Behind any System, nor from those who ask what had seen a text."""
    store, variant = opened(root), build_variant((1, 2), system="another", context=("c0",))
    wrong = f"UPDATE entries SET context = {'NULL' if context is None else repr(context)}"
    store.put(variant)
    altered(root, wrong)
    assert store.seeing(["c0"]) == [variant.key]
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 1
    store.put(variant)
    altered(root, wrong)
    assert store.drop_seeing(["c0"]) == [variant.key]


def test_a_row_takes_no_file_of_another_chunk_with_it(root: Path) -> None:
    store, other = opened(root), build_variant((1, 3))
    store.put(other)
    altered(root, f"UPDATE entries SET chunk = '{ids_hash((1, 2))}'")
    assert store.drop_chunk("engine-a", "system", ids_hash((1, 2)), elsewhere=True) == 0
    assert store.get(other.key) is not None


def killed_as_its_file_was_there(store: DiskTier, root: Path) -> None:
    variant, codec, layout = build_variant((1, 2), context=("c0",)), open_codec("raw"), FolderLayout(root)
    header, parts = pack(variant, codec)
    contents = Contents(variant.key, codec.name, header.lineage, sum(map(len, parts)))
    store._index.change(lambda change: change.announce(contents, f"{variant.key.digest}.1.ab.tmp"))
    layout.entry(variant.key).parent.mkdir(parents=True)
    layout.entry(variant.key).write_bytes(b"".join(parts))
    assert told(root, "SELECT file FROM entries") == [(0,)]


def test_what_a_killed_writer_has_put_there_goes_too(root: Path) -> None:
    store, key = opened(root), build_variant((1, 2), context=("c0",)).key
    killed_as_its_file_was_there(store, root)
    assert store.drop_chunk("engine-a", "another", ids_hash((1, 2)), elsewhere=True) == 1
    killed_as_its_file_was_there(store, root)
    assert store.drop_seeing(["c0"]) == [key]
    assert not list(root.glob("*/*/*/*.kv"))


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
