"""Run by test_processes.py: who gives a disk tier a smaller budget is killed at each of its steps in turn."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

from conftest import build_variant
from processes import ENTRY, KEYS, die_at, in_child, untold

from ragcache.store import DiskTier, disk_budget


def resized(folder: Path) -> None:
    """Also between two changes."""

    def write(count: int) -> None:
        store = DiskTier(folder, None, "raw")
        die_at(count)
        store.resize("disk", 2 * ENTRY)

    disk_budget._AT_ONCE = 2
    onlooker, count, status = DiskTier(folder, None, "raw"), 0, -1
    while status != 0:
        for ids in KEYS[:6]:
            onlooker.put(build_variant(ids))
        _, status = os.waitpid(in_child(partial(write, count)), 0)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
        assert untold(folder) == set()
        assert onlooker.verify() == []
        onlooker.check_integrity()
        assert onlooker.outlook("disk", 2 * ENTRY).leaving == DiskTier(folder, None, "raw").resize("disk", 2 * ENTRY)
        assert onlooker.stats()[0].entries == 2
        assert onlooker.get(build_variant(KEYS[5]).key) is not None, "it was put last"
        count += 1
    print(f"killed at {count} steps")


if __name__ == "__main__":
    {"resized": resized}[sys.argv[1]](Path(sys.argv[2]))
