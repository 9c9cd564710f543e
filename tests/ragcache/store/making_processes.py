"""Run by test_processes.py: processes that are killed as they make a cache folder's index anew, of another version or a
torn one, beside one that looks up.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from conftest import build_variant
from processes import ENTRY, KEYS, die_at, in_child

from ragcache.store import DiskTier


def of_another_version(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        index.execute("PRAGMA user_version = 1")


def lost_its_log(folder: Path) -> None:
    """And with it a commit: the mark is ahead."""
    mark = (folder / "index.mark").read_text()
    (folder / "index.mark").write_text(f"{7:020}" + mark[20:])


def torn(folder: Path) -> None:
    """So that its pins can still be read."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        index.execute("DROP TABLE entries")


def remade(folder: Path) -> None:
    base = folder / "base"
    store = DiskTier(base, None, "raw")
    for ids in KEYS[:3]:
        store.put(build_variant(ids))
    store.pin(build_variant(KEYS[0]).key)
    del store

    def opened(root: Path, count: int) -> None:
        die_at(count)
        DiskTier(root, 100 * ENTRY, "raw")

    kills = 0
    for harm in (of_another_version, lost_its_log, torn):
        count, status = 0, -1
        while status != 0:
            root = folder / "copy"
            shutil.copytree(base, root)
            harm(root)
            _, status = os.waitpid(in_child(partial(opened, root, count)), 0)
            assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
            after = DiskTier(root, 100 * ENTRY, "raw")
            after.check_integrity()
            after.put(build_variant(KEYS[5]))
            assert after.stats()[0].entries == 4
            with closing(sqlite3.connect(root / "index.sqlite")) as index:
                assert index.execute("SELECT count(*) FROM pins").fetchone() == (1,), (harm, count)
            del after
            shutil.rmtree(root)
            count, kills = count + 1, kills + (status != 0)
    print(f"killed at {kills} steps")


if __name__ == "__main__":
    {"remade": remade}[sys.argv[1]](Path(sys.argv[2]))
