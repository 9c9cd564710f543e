"""What the disk tier does beyond the contract, mostly when things go wrong."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.errors import CorruptEntry, ForeignEntry, StoreError
from ragcache.store import DiskTier
from ragcache.store.findings import Flaw


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[DiskTier]:
    store = DiskTier(root, None, "raw")
    yield store
    store.check_integrity()


def entry_file(root: Path, variant: Any) -> Path:
    (path,) = root.rglob(f"{variant.key.digest}.kv")
    return path


def flip(path: Path, position: int) -> None:
    """Change a byte in place, leaving size and times as they were."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@contextmanager
def full_disk(at: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond `at` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_an_entry_lies(store: DiskTier, root: Path, make_variant: Any) -> None:
    variant = make_variant(fingerprint="0123456789abcdef-and-more")
    store.put(variant)
    family = variant.key.family
    assert (root / "0123456789abcdef" / family[:2] / family / f"{variant.key.digest}.kv").is_file()
    assert list(root.rglob("*.tmp")) == []


def test_nothing_is_left_of_a_deleted_family(store: DiskTier, root: Path, make_variant: Any) -> None:
    store.put(make_variant())
    store.pin(make_variant().key)
    store.delete(make_variant().key)
    assert list(root.glob("*/*/*")) == list(root.glob("writing/*")) == []


def test_a_bad_file_is_raised_once_and_quarantined(
    store: DiskTier, root: Path, make_variant: Any, caplog: pytest.LogCaptureFixture
) -> None:
    variant = make_variant()
    store.put(variant)
    flip(entry_file(root, variant), -1)
    with caplog.at_level(logging.WARNING), pytest.raises(CorruptEntry, match="layer 1"):
        store.get(variant.key)
    assert "layer 1" in caplog.text
    assert store.get(variant.key) is None
    assert "layer 1" in (root / "quarantine" / f"{variant.key.digest}.txt").read_text()
    assert (root / "quarantine" / f"{variant.key.digest}.kv").is_file()
    (stats,) = store.stats()
    assert (stats.entries, stats.nbytes, stats.quarantined) == (0, 0, 1)
    store.put(variant)
    assert store.get(variant.key) is not None


def test_a_good_file_that_replaced_a_bad_one_is_left_alone(store: DiskTier, root: Path, make_variant: Any) -> None:
    """Another process computed the entry again while this one was reading the bad file."""
    store.put(make_variant(seed=1))
    path = entry_file(root, make_variant())
    fd = os.open(path, os.O_RDONLY)

    def read_meanwhile_replaced() -> None:
        with store._bad.guarded(path, fd):
            store.put(make_variant(seed=2))
            raise CorruptEntry("the file that was opened")

    with pytest.raises(CorruptEntry):
        read_meanwhile_replaced()
    os.close(fd)
    assert torch.equal(store.get(make_variant().key).variant.k, make_variant(seed=2).k)  # type: ignore[union-attr]


def test_a_file_cut_short_leaves_the_books_right(store: DiskTier, root: Path, make_variant: Any) -> None:
    store.put(make_variant())
    os.truncate(entry_file(root, make_variant()), 100)
    with pytest.raises(CorruptEntry):
        store.get(make_variant().key)


def test_a_file_of_another_key_is_foreign(store: DiskTier, root: Path, make_variant: Any) -> None:
    ours, theirs = make_variant(), make_variant(fingerprint="engine-b")
    store.put(ours)
    store.put(theirs)
    shutil.copy(entry_file(root, theirs), entry_file(root, ours))
    with pytest.raises(ForeignEntry, match="another fingerprint: 'engine-b' instead of 'engine-a'"):
        store.get(ours.key)
    assert store.get(ours.key) is None
    assert store.get(theirs.key) is not None


def test_listing_leaves_bad_and_foreign_files_out(store: DiskTier, root: Path, make_variant: Any) -> None:
    good, corrupt, moved = (make_variant(context=context) for context in ((), ("a",), ("b",)))
    for variant in (good, corrupt, moved):
        store.put(variant)
    flip(entry_file(root, corrupt), 20)
    shutil.copy(entry_file(root, good), entry_file(root, moved))
    fresh = DiskTier(root, None, "raw")
    assert [info.key for info in fresh.variants(good.key.family)] == [good.key]
    assert fresh.stats()[0].quarantined == 2


def test_verify_finds_every_bad_file(store: DiskTier, root: Path, make_variant: Any) -> None:
    variants = [make_variant((i,)) for i in range(4)]
    for variant in variants:
        store.put(variant)
    flip(entry_file(root, variants[0]), -1)
    shutil.copy(entry_file(root, variants[2]), entry_file(root, variants[1]))
    flaws = {Path(flaw.where).stem: flaw.reason for flaw in store.verify()}
    assert set(flaws) == {variants[0].key.digest, variants[1].key.digest}
    assert "checksum" in flaws[variants[0].key.digest]
    assert "another variant" in flaws[variants[1].key.digest]
    assert store.verify() == []


def test_headers_are_read_once(store: DiskTier, root: Path, make_variant: Any) -> None:
    """Also when the entry has been used since, by whichever process."""
    variant, looking = make_variant(), DiskTier(root, None, "raw")
    store.put(variant)
    assert len(looking.variants(variant.key.family)) == 1
    assert store.get(variant.key) is not None
    flip(entry_file(root, variant), 20)
    assert len(looking.variants(variant.key.family)) == 1
    assert DiskTier(root, None, "raw").variants(variant.key.family) == []


def test_the_header_of_a_file_that_replaced_another_is_read(store: DiskTier, root: Path, make_variant: Any) -> None:
    looking = DiskTier(root, None, "raw")
    for seed in (1, 2):
        store.put(make_variant(seed=seed))
        (info,) = looking.variants(make_variant().key.family)
        assert (info.profile.intra == make_variant(seed=seed).profile.intra).all()


def test_a_look_up_waits_for_nobody_who_changes_the_folder(store: DiskTier, root: Path, make_variant: Any) -> None:
    """Not even where it meets a bad file, which is taken away once the other is done."""
    good, bad = make_variant(), make_variant(context=("a",))
    for variant in (good, bad):
        store.put(variant)
    path = entry_file(root, bad)
    flip(path, 20)
    looking, flaws = DiskTier(root, None, "raw"), list[Flaw]()

    def look_meanwhile(change: object) -> None:
        for _ in range(2):
            assert [info.key for info in looking.variants(good.key.family, flaws)] == [good.key]
        assert path.exists()

    store._index.change(look_meanwhile)
    assert [flaw.where for flaw in flaws] == [str(path)] * 2
    assert looking.stats()[0].quarantined == 1
    assert not path.exists()


def test_the_quarantine_is_bounded(store: DiskTier, root: Path, make_variant: Any) -> None:
    for i in range(40):
        store.put(make_variant((i,)))
        flip(entry_file(root, make_variant((i,))), -1)
    store.verify()
    assert len(list((root / "quarantine").glob("*.kv"))) == len(list((root / "quarantine").glob("*.txt"))) == 32


def test_each_file_is_read_with_its_own_codec(store: DiskTier, root: Path, make_variant: Any) -> None:
    exact, rounded = make_variant((1,)), make_variant((2,))
    store.put(exact)
    other = DiskTier(root, None, "bf16")
    other.put(rounded)
    for tier in (store, other):
        assert torch.equal(tier.get(exact.key).variant.k, exact.k)  # type: ignore[union-attr]
        assert torch.equal(tier.get(rounded.key).variant.k, rounded.k.bfloat16().float())  # type: ignore[union-attr]


def test_a_full_disk_is_said_and_leaves_what_was(store: DiskTier, root: Path, make_variant: Any) -> None:
    small, large = make_variant((1,)), make_variant(tuple(range(300)))
    store.put(small)
    with full_disk(at=8192):
        with pytest.raises(StoreError, match=r"cannot write to the cache folder .*store.*Free some space"):
            store.put(large)
        assert store.get(large.key) is None
        assert store.get(small.key) is not None
    assert list(root.rglob("*.tmp")) == []
    store.put(large)
    assert store.get(large.key) is not None


def test_a_failed_replacement_keeps_the_old_entry(store: DiskTier, make_variant: Any) -> None:
    old, new = make_variant(seed=1), make_variant(seed=2)
    store.put(old)
    with full_disk(at=100), pytest.raises(StoreError):
        store.put(new)
    assert torch.equal(store.get(old.key).variant.k, old.k)  # type: ignore[union-attr]


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot open the cache folder .*file/store"):
        DiskTier(tmp_path / "file" / "store", None, "raw")


def test_a_folder_that_cannot_be_written_is_refused_at_once() -> None:
    with pytest.raises(StoreError, match="cannot open the cache folder"):
        DiskTier(Path("/proc/self"), None, "raw")


def test_an_emptied_folder_is_an_empty_store(root: Path, make_variant: Any) -> None:
    probe = DiskTier(root, None, "raw")
    probe.put(make_variant())
    store = DiskTier(root, probe.stats()[0].nbytes, "raw")
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    assert store.get(make_variant().key) is None
    store.put(make_variant((1, 1, 1)))  # though the books said that it was full
    assert store.get(make_variant((1, 1, 1)).key) is not None
    store.stats()  # what look-ups have left is done: none of it is written amid what follows
    shutil.rmtree(root)
    assert store.get(make_variant((1, 1, 1)).key) is None
    store.put(make_variant())
    store.check_integrity()


def test_a_smaller_budget_evicts_at_the_start(store: DiskTier, root: Path, make_variant: Any) -> None:
    for i in range(4):
        store.put(make_variant((i, i, i)))
    one = store.stats()[0].nbytes // 4
    smaller = DiskTier(root, 2 * one, "raw")
    assert smaller.stats()[0].entries == 2
    assert smaller.get(make_variant((3, 3, 3)).key) is not None
    smaller.check_integrity()


def test_pins_survive_a_restart(store: DiskTier, root: Path, make_variant: Any) -> None:
    pinned, other, third = (make_variant((i, i, i)) for i in range(3))
    store.put(pinned)
    store.pin(pinned.key)
    store.put(other)
    later = DiskTier(root, store.stats()[0].nbytes, "raw")
    later.put(third)
    assert later.get(pinned.key) is not None
    assert later.get(other.key) is None


def test_temporary_files_of_dead_writers_are_swept(store: DiskTier, root: Path, make_variant: Any) -> None:
    store.put(make_variant())
    dead, alive = root / "writing" / "x.1.aa.tmp", root / "writing" / "x.1.bb.tmp"
    dead.touch()
    with alive.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        DiskTier(root, None, "raw")
        assert not dead.exists()
        assert alive.exists()
    DiskTier(root, None, "raw")
    assert not alive.exists()
