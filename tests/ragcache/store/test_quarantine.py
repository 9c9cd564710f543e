"""What is put aside, and what is not, whatever others do meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragcache.address import prefix_name
from ragcache.errors import CorruptEntry
from ragcache.store import folder, open_store
from ragcache.store.base import KVStore
from ragcache.store.folder import Quarantine
from ragcache.types import Variant, VariantKey
from tests.ragcache.store.folders import opened
from tests.ragcache.store.test_disk import entry_file


def test_a_good_file_that_was_given_the_inode_of_a_bad_one_is_left_alone(
    root: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the bad one is put aside."""
    store, variant, tasks = opened(root), make_variant(), []
    store.put(variant)
    path = entry_file(root, variant)
    good = path.read_bytes()
    path.write_bytes(b"bad")
    os.utime(path, (1, 1))
    fresh = opened(root)
    monkeypatch.setattr(fresh._background, "add", lambda *task: tasks.append(task))
    assert fresh.variants(variant.key.family) == []
    path.write_bytes(good)
    for task, *values in tasks:
        task(*values)
    assert len(tasks) == 1
    assert store.get(variant.key) is not None


def test_the_quarantine_may_be_emptied_while_a_file_is_put_aside(
    root: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, variant = opened(root), make_variant()
    store.put(variant)
    entry_file(root, variant).write_bytes(b"bad")
    glob = Path.glob

    def emptied(folder: Path, pattern: str) -> list[Path]:
        found = list(glob(folder, pattern))
        for path in found:
            path.unlink()
        return found

    monkeypatch.setattr(Path, "glob", emptied)
    with pytest.raises(CorruptEntry):
        store.get(variant.key)
    assert store.stats()[0].quarantined == 1


def test_few_files_and_few_bytes_stay_aside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quarantine = Quarantine(root / "aside")
    monkeypatch.setattr(folder, "_KEPT_NBYTES", 250)

    def taken(number: int, nbytes: int) -> list[str]:
        path = root / f"{number:02}.kv"
        path.write_bytes(bytes(nbytes))
        quarantine.take(path, CorruptEntry("bad"))
        time.sleep(0.01)  # of two that come within a tick of the file system's clock either is the older one
        return sorted(one.stem for one in (root / "aside").glob("*.kv"))

    root.mkdir(exist_ok=True)
    for number in range(3):
        held = taken(number, 100)
    assert held == ["01", "02"]
    assert taken(3, 1000) == ["03"], "the newest stays, whatever it takes"
    assert taken(4, 0) == ["04"]
    for number in range(5, 45):
        held = taken(number, 1)
    assert held == [f"{number:02}" for number in range(13, 45)]
    assert len(list((root / "aside").glob("*.txt"))) == len(held)


def put_aside(store: KVStore, root: Path, variant: Variant) -> None:
    """Its last byte is another one: its header tells whose it is."""
    store.put(variant)
    path = entry_file(root, variant)
    path.write_bytes(flipped(path.read_bytes()))
    assert open_store(root, ram_bytes=0, codec="raw").verify() != []


def flipped(data: bytes) -> bytes:
    return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]


def aside(root: Path) -> set[str]:
    return {path.stem for path in (root / "quarantine").iterdir()}


def by_chunk(store: KVStore, gone: VariantKey) -> object:
    return store.drop_chunk("engine", "system", gone.chunk, elsewhere=True)


def by_traces(store: KVStore, gone: VariantKey) -> object:
    return store.drop_seeing(gone.context)


def by_key(store: KVStore, gone: VariantKey) -> object:
    return store.delete(gone)


@pytest.mark.parametrize("ram", [0, None])
@pytest.mark.parametrize("drop", [by_chunk, by_traces, by_key])
def test_what_was_put_aside_goes_with_its_text(
    root: Path, make_variant: Any, ram: int | None, drop: Callable[[KVStore, VariantKey], object]
) -> None:
    """Though no look-up finds it any more; what is another's stays to be looked into."""
    gone, stays = make_variant(context=("gone",), plain=True), make_variant((9, 9), context=("other",), plain=True)
    store = open_store(root, ram_bytes=ram, codec="raw")
    for variant in (gone, stays):
        put_aside(store, root, variant)
    assert aside(root) == {gone.key.digest, stays.key.digest}
    drop(store, gone.key)
    assert aside(root) == {stays.key.digest}


@pytest.mark.parametrize("drop", [by_chunk, by_traces, by_key])
def test_what_was_put_aside_under_anothers_name_goes_with_its_own_text(
    root: Path, make_variant: Any, drop: Callable[[KVStore, VariantKey], object]
) -> None:
    """Files that were moved by hand: each tells whose it is."""
    gone, stays = make_variant(context=("gone",), plain=True), make_variant((9, 9), context=("other",), plain=True)
    store = opened(root)
    for variant in (gone, stays):
        store.put(variant)
    paths = [entry_file(root, variant) for variant in (gone, stays)]
    data = [path.read_bytes() for path in paths]
    for path, other in zip(paths, reversed(data), strict=True):
        path.write_bytes(other)
    assert len(opened(root).verify()) == 2
    assert aside(root) == {gone.key.digest, stays.key.digest}
    (root / "quarantine" / f"{gone.key.digest}.kv").rename(root / "quarantine" / "another.kv")
    drop(store, gone.key)
    assert {path.name for path in (root / "quarantine").glob("*.kv")} == {"another.kv"}, "it holds what stays"


@pytest.mark.parametrize("drop", [by_chunk, by_traces, by_key])
def test_what_is_aside_and_cannot_be_read_keeps_no_sound_entry(
    root: Path, make_variant: Any, drop: Callable[[KVStore, VariantKey], object]
) -> None:
    """A disk that fails is what fills this folder."""
    store, sound = opened(root), make_variant()
    put_aside(store, root, make_variant((9, 9)))
    store.put(sound)
    (root / "quarantine" / "failing.kv").mkdir()
    drop(store, sound.key)
    assert store.variants(sound.key.family) == []


def test_a_block_of_a_conversation_that_was_put_aside_goes_with_all_of_them(root: Path, make_variant: Any) -> None:
    """No chunk had a part in it."""
    store, block, chunk = opened(root), make_variant(fingerprint=prefix_name("engine")), make_variant()
    for one in (block, chunk):
        put_aside(store, root, one)
    assert aside(root) == {block.key.digest, chunk.key.digest}
    store.drop_prefixes()
    assert aside(root) == {chunk.key.digest}
