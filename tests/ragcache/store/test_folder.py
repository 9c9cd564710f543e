from __future__ import annotations

import time
from pathlib import Path

import pytest

from ragcache.errors import StoreError
from ragcache.store import open_store
from ragcache.store.folder import CacheFolder, engine_name
from ragcache.store.index_parts import ASKED, look
from ragcache.store.layout import FolderLayout
from tests.ragcache.store.conftest import build_variant

LATER = time.time_ns() + 10**15


def fill(root: Path, count: int = 3) -> None:
    store = open_store(root, ram_bytes=0, codec="raw")
    for number in range(count):
        store.put(build_variant((number + 1,)))


def test_items_are_told_from_their_places(tmp_path: Path) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    variant = build_variant()
    store.put(variant)
    store.pin(variant.key)
    folder = CacheFolder(tmp_path)
    (item,) = folder.items()
    assert (item.engine, item.family) == (engine_name(variant.key.fingerprint), variant.key.family)
    assert (item.address, item.pinned, item.nbytes) == (variant.key.digest, True, item.path.stat().st_size)
    assert folder.key(item) == variant.key
    item.path.write_bytes(b"torn")
    assert folder.key(item) is None
    item.path.unlink()
    assert folder.key(item) is None


@pytest.mark.parametrize("indexed", [True, False])
def test_families_are_looked_up_as_a_look_at_all_finds_them(tmp_path: Path, indexed: bool) -> None:
    fill(tmp_path)
    variant = build_variant((1, 2, 3), fingerprint="another-engine-of-more")
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    folder, engine = CacheFolder(tmp_path), engine_name("engine-a")
    first, *_ = of_all = {item.family for item in folder.items([engine])}
    (tmp_path / first[:2] / first).mkdir(parents=True)  # where no engine's folder is
    if not indexed:
        (tmp_path / "index.mark").unlink()
    asked = [*of_all, variant.key.family, "0" * 64]
    assert folder.with_entries(engine, asked) == of_all
    assert folder.with_entries(engine, [first]) == {first}
    assert folder.with_entries(engine_name(variant.key.fingerprint), asked) == {variant.key.family}
    folder.remove([item for item in folder.items() if item.family == first], LATER)
    assert folder.with_entries(engine, asked) == of_all - {first}
    assert CacheFolder(tmp_path / "none").with_entries(engine, asked) == set()


def test_a_family_is_found_by_the_index_of_families(tmp_path: Path) -> None:
    """Of a hundred thousand entries only those that are asked for are read."""
    fill(tmp_path)
    plan = look(FolderLayout(tmp_path), f"EXPLAIN QUERY PLAN {ASKED}", ("[]", "engine-a"))
    assert plan is not None
    assert any("USING COVERING INDEX by_family (family=? AND engine=?" in str(row) for row in plan)


def test_what_is_removed_leaves_the_books_right(tmp_path: Path) -> None:
    fill(tmp_path)
    folder = CacheFolder(tmp_path)
    first, second, third = folder.items()
    user, now = open_store(tmp_path, ram_bytes=0, codec="raw"), time.time_ns()
    user.pin(folder.key(second) or build_variant().key)
    user.get(folder.key(third) or build_variant().key)
    user.stats()  # the use is written down
    era = user.era()
    assert folder.remove([first, second, third], now) == [first], "not what is pinned, nor what was used since"
    assert user.era() != era, "a keep that is under way brings none of it back"
    assert folder.remove([first], LATER) == []
    assert not first.path.parent.exists()
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    store.check_integrity()
    assert store.stats()[0].entries == 2


def test_many_go_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.store.folder._AT_ONCE", 2)
    fill(tmp_path, 5)
    folder = CacheFolder(tmp_path)
    assert len(folder.remove(folder.items(), LATER)) == 5
    open_store(tmp_path, ram_bytes=0, codec="raw").check_integrity()
    assert list(folder.items()) == []


def test_leftovers_and_bad_files(tmp_path: Path) -> None:
    fill(tmp_path)
    folder = CacheFolder(tmp_path)
    bad = next(folder.items())
    bad.path.write_bytes(b"bad")
    (tmp_path / "writing" / "a.1.b.tmp").write_bytes(b"half")
    assert folder.temporaries() == 1
    open_store(tmp_path, ram_bytes=0, codec="raw").verify()
    assert folder.quarantined(0) == []
    old = folder.quarantined(LATER)
    assert [path.name for path in old] == [bad.path.name]
    assert folder.discard(old) == 1
    assert list((tmp_path / "quarantine").iterdir()) == []
    assert (folder.sweep(), folder.temporaries()) == (0, 0), "opening the store has swept"


def test_a_folder_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "none")
    assert list(folder.items()) == folder.remove([], LATER) == []
    assert folder.quarantined(LATER) == []
    assert folder.sweep() == folder.temporaries() == 0
    assert not folder.root.exists()


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "index.mark").unlink()
    (tmp_path / "index.mark").mkdir()
    folder = CacheFolder(tmp_path)
    with pytest.raises(StoreError, match=f"cannot delete from the cache folder {tmp_path}"):
        folder.remove(folder.items(), LATER)
