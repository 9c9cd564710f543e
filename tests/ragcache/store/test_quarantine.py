"""What is put aside, and what is not, whatever others do meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import CorruptEntry
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
