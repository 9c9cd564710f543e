"""Freeing what the KV cache holds for nobody, and putting aside what is bad.

A running ingest has written KV whose chunks SQL does not show yet. Two things keep it: the ingest locks of all
collections are held, so that no ingest runs into them, and what has been written or read since the start stays, which
is all that an ingest into a collection made meanwhile can have. The locks are those of this catalog: if several
catalogs share one cache folder, each takes the others' KV for unreferenced, and it is computed again when it is needed.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta

from app.cachecare.census import FileTally, take_census
from app.library import Library
from app.library.kv import has_kv
from app.models import Models
from ragcache.store.base import Flaw
from ragcache.store.folder import CacheFolder, Item

QUARANTINE_AGE = timedelta(days=7)


@dataclass(frozen=True)
class Pruned:
    """What went, or would go."""

    unreferenced: FileTally
    other: FileTally  # of other models and System segments
    temporaries: int
    quarantined: int
    dry: bool


@dataclass(frozen=True)
class Verified:
    entries: int  # that were there
    nbytes: int
    flaws: tuple[Flaw, ...]  # quarantined now


def prune(
    library: Library,
    models: Models,
    *,
    others: bool = False,
    dry: bool = False,
    quarantine_age: timedelta = QUARANTINE_AGE,
) -> Pruned:
    """`others` takes the KV of other models and System segments too. Raises CatalogError while an ingest runs."""
    started = time.time_ns()
    folder = CacheFolder(library.settings.kv_folder)
    if not has_kv(library.settings) and not folder.quarantined(started):
        return Pruned(FileTally(), FileTally(), 0, 0, dry)
    with nullcontext() if dry else library.catalog.alone(*library.catalog.collections.all()):
        census = take_census(library, models)
        dead, other = census.dead, census.other if others else []
        old = folder.quarantined(started - int(quarantine_age.total_seconds() * 1e9))
        if dry:
            return Pruned(FileTally.of(_loose(dead)), FileTally.of(_loose(other)), folder.temporaries(), len(old), dry)
        gone, gone_others = folder.remove(dead, started), folder.remove(other, started)
    return Pruned(FileTally.of(gone), FileTally.of(gone_others), folder.sweep(), folder.discard(old), dry)


def verify(library: Library, models: Models) -> Verified:
    """Bad files are put aside; an answer computes them again."""
    if not has_kv(library.settings):
        return Verified(0, 0, ())
    store = models.store
    kept = store.kept
    return Verified(kept.entries, kept.nbytes, tuple(store.verify()))


def _loose(items: list[Item]) -> list[Item]:
    return [item for item in items if not item.pinned]
