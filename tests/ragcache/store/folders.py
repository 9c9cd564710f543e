"""Cache folders with a few variants in them, and what their index says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from ragcache.store import DiskTier
from ragcache.store.eviction.lru import LRU
from tests.ragcache.store.conftest import build_variant

VARIANTS = [build_variant((number, number, number)) for number in range(6)]


def opened(root: Path, budget: int | None = None) -> DiskTier:
    """From which goes what was used longest ago."""
    return DiskTier(root, budget, "raw", LRU)


def filled(root: Path, count: int = 3) -> DiskTier:
    store = opened(root)
    for variant in VARIANTS[:count]:
        store.put(variant)
    return store


def told(root: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(root / "index.sqlite")) as index:
        return index.execute(sql).fetchall()


def altered(root: Path, sql: str) -> None:
    with closing(sqlite3.connect(root / "index.sqlite")) as index, index:
        index.execute(sql)


def listed(store: DiskTier) -> list[int]:
    return [place for place, variant in enumerate(VARIANTS) if store.variants(variant.key.family)]


def kept(store: DiskTier) -> list[int]:
    """Which of the variants look-ups find; each is told as it is read."""
    found = listed(store)
    assert found == [place for place, variant in enumerate(VARIANTS) if store.get(variant.key) is not None]
    return found
