"""Run by test_processes.py: several processes on one cache folder, some of which are killed.

A script of its own, so that it forks from a process that runs no other threads.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import build_variant

from ragcache.errors import CorruptEntry
from ragcache.store import DiskTier, open_store
from ragcache.store.eviction import ORDERS, VARIANTS, open_order
from ragcache.types import Variant

SEAMS = ["write", "fsync", "replace", "pwrite", "unlink", "rmdir", "mkdir"]
KEYS = [(i, i, i) for i in range(8)]
LIVES = int(os.environ.get("KILLS", "60"))  # of a writer that is killed anywhere; more by hand: KILLS=200
ENTRY = 1152  # bytes of a default variant's file, about


def in_child(work: Callable[[], None]) -> int:
    """Start it; its exit status is 1 when it raises."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:  # a child must never return into its parent's code
            if status:
                traceback.print_exc()
            os._exit(status)
    return pid


def die_at(count: int) -> None:
    """Kill this process as it makes its `count`-th change to the disk, in the middle of it if it is a write; before
    each statement to the index, too.
    """
    left, connect = [count], sqlite3.connect

    def step(statement: str) -> None:
        if not statement.startswith("SELECT"):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(step)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]

    def deadly(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                if name in ("write", "pwrite"):
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return call(*args, **kwargs)

        return wrapped

    for name in SEAMS:
        setattr(os, name, deadly(getattr(os, name), name))


def untold(folder: Path) -> set[str]:
    """Files that the index does not know, as it is: nobody who opens it looks at them."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        rows = {digest for (digest,) in index.execute("SELECT digest FROM entries")}
    return {path.stem for path in folder.glob("*/*/*/*.kv")} - rows


def assert_sound(store: DiskTier, folder: Path) -> None:
    store.check_integrity()
    assert store.verify() == []
    for ids in KEYS:
        fetched = store.get(build_variant(ids).key)
        assert fetched is None or is_a_put_one(fetched.variant)
    assert DiskTier(folder, 4 * ENTRY, "raw").stats()[0].entries == store.stats()[0].entries
    assert list(folder.rglob("*.tmp")) == []


def is_a_put_one(variant: Variant) -> bool:
    return any(torch.equal(variant.k, build_variant(variant.ids, seed=seed).k) for seed in range(2))


def crash(folder: Path) -> None:
    """A writer killed at each of its steps in turn."""

    def write(count: int) -> None:
        die_at(count)
        store = DiskTier(folder, 4 * ENTRY, "raw")
        for ids in KEYS[:5]:  # evicts
            store.put(build_variant(ids))
        store.put(build_variant(KEYS[4], seed=1))  # replaces
        store.pin(build_variant(KEYS[3]).key)
        store.delete(build_variant(KEYS[3]).key)

    onlooker, count, status = DiskTier(folder, 4 * ENTRY, "raw"), 0, -1
    while status != 0:
        _, status = os.waitpid(in_child(partial(write, count)), 0)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
        assert untold(folder) == set()
        assert onlooker.verify() == []
        onlooker.check_integrity()
        assert_sound(DiskTier(folder, 4 * ENTRY, "raw"), folder)
        count += 1
    print(f"killed at {count} steps")


def takeover(folder: Path) -> None:
    """Who opens a folder from before the index is killed at each of its steps in turn."""
    store = DiskTier(folder, None, "raw")
    for ids in KEYS[:4]:
        store.put(build_variant(ids))
    paths = sorted(folder.glob("*/*/*/*.kv"))
    del store

    def opened(count: int) -> None:
        die_at(count)
        DiskTier(folder, None, "raw")

    count, status = 0, -1
    while status != 0:
        for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.mark"):
            (folder / name).unlink(missing_ok=True)
        paths[0].with_suffix(".pin").touch()
        (folder / "usage").write_text("4 4352\n")
        _, status = os.waitpid(in_child(partial(opened, count)), 0)
        store = DiskTier(folder, 3 * ENTRY, "raw")
        store.check_integrity()
        assert paths[0].exists(), "it is pinned"
        with closing(sqlite3.connect(folder / "index.sqlite")) as index:
            assert index.execute("SELECT digest FROM pins").fetchall() == [(paths[0].stem,)]
        del store
        for ids in KEYS[:4]:
            DiskTier(folder, None, "raw").put(build_variant(ids))
        count += 1
    print(f"killed at {count} steps")


def kill(folder: Path) -> None:
    """A writer killed wherever it happens to be, in the middle of SQLite's own writes too; and a new one after it.
    Each evicts in one of the orders.
    """

    def write(order: str) -> None:
        random, store = np.random.default_rng(), DiskTier(folder, 4 * ENTRY, "raw", open_order(order))
        while True:
            act(store, build_variant(KEYS[random.integers(len(KEYS))]), int(random.integers(10)))

    random = np.random.default_rng(7)
    DiskTier(folder, None, "raw").put(build_variant(KEYS[0]))
    for life in range(LIVES):
        pid = in_child(partial(write, list(ORDERS)[life % len(ORDERS)]))
        time.sleep(random.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        assert untold(folder) == set()
        store = DiskTier(folder, 4 * ENTRY, "raw")
        assert store.verify() == []
        assert_sound(store, folder)


def rebuilt(folder: Path) -> None:
    """An index that is deleted, torn and put back from an older copy, under four processes that go on."""

    def work(seed: int) -> None:
        random, store = np.random.default_rng(seed), DiskTier(folder, 4 * ENTRY, "raw")
        for _ in range(150):
            act(store, build_variant(KEYS[random.integers(len(KEYS))]), int(random.integers(8)))

    def vandalise() -> None:
        index = folder / "index.sqlite"
        for place in range(6):
            time.sleep(0.1)
            if place % 2:
                index.unlink(missing_ok=True)
            else:
                beside = folder / "beside"
                beside.write_bytes(os.urandom(9000))
                beside.replace(index)

    children = [in_child(partial(work, seed)) for seed in range(4)] + [in_child(vandalise)]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    store = DiskTier(folder, 4 * ENTRY, "raw")
    assert_sound(store, folder)
    assert store.verify() == []


def stress(folder: Path) -> None:
    """Four processes do everything at once on eight keys, of which four fit; a fifth flips bytes."""

    def work(seed: int) -> None:
        random, store = np.random.default_rng(seed), DiskTier(folder, 4 * ENTRY, "raw")
        for step in range(250):
            variant = build_variant(KEYS[random.integers(len(KEYS))], seed=int(random.integers(2)))
            try:
                act(store, variant, int(random.integers(8)))
            except CorruptEntry:
                continue
            if step % 50 == 0:
                store = DiskTier(folder, 4 * ENTRY, "raw")

    def vandalise() -> None:
        random = np.random.default_rng(99)
        for _ in range(60):
            for path in folder.glob("*/*/*/*.kv"):
                try:
                    with path.open("r+b") as file:
                        file.seek(int(random.integers(ENTRY)))
                        file.write(b"?")
                except FileNotFoundError:
                    continue
                break

    children = [in_child(partial(work, seed)) for seed in range(4)] + [in_child(vandalise)]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    store = DiskTier(folder, 4 * ENTRY, "raw")
    store.verify()
    assert_sound(store, folder)


def count(folder: Path) -> None:
    """Without a budget nothing is ever counted again, so the books show whether each change was one step."""
    store = DiskTier(folder, None, "raw")

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for step in range(150):
            variant = build_variant((int(random.integers(20)),), layers=1 + step % 3)
            if random.integers(2):
                store.put(variant)
            else:
                store.delete(variant.key)

    children = [in_child(partial(work, seed)) for seed in range(4)]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    store.check_integrity()


def family(folder: Path) -> None:
    """Four processes store one chunk behind ever other contexts, each with a RAM of its own."""

    def work(seed: int) -> None:
        store = open_store(folder, codec="raw")
        for step in range(40):
            store.put(build_variant(context=(f"{seed} {step}",)))

    children = [in_child(partial(work, seed)) for seed in range(4)]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    store = DiskTier(folder, None, "raw")
    store.check_integrity()
    assert store.stats()[0].entries == VARIANTS


def act(store: DiskTier, variant: Variant, choice: int) -> None:
    match choice:
        case 0 | 1 | 2:
            store.put(variant)
        case 3:
            store.delete(variant.key)
        case 4:
            assert all(info.key == variant.key for info in store.variants(variant.key.family))
        case 5:
            store.pin(build_variant(KEYS[0]).key, variant.ids == KEYS[0])
        case 8:
            store.put(variant, wanted=True)
        case 9:
            store.credit(variant.key, 20.0)
        case _:
            fetched = store.get(variant.key)
            assert fetched is None or is_a_put_one(fetched.variant)


if __name__ == "__main__":
    scenes = [crash, takeover, kill, rebuilt, stress, count, family]
    {scene.__name__: scene for scene in scenes}[sys.argv[1]](Path(sys.argv[2]))
