"""What is in RAM comes without a thread; what is not there any more is waited for by the threads alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ragcache.link_job import Linkage
from ragcache.linking import make_linker
from ragcache.loader import Loader, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.reading import Pace
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.planning import first_address, plan_prompt
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.findings import RAM
from tests.cold_prompts import ALL, LIMIT_S, Gate, ingested, prompt
from tests.tiny import Tiny

LOADERS: Mapping[str, Callable[[DiskThreads, Pace | None], Loader]] = {
    "cake": lambda threads, pace: CakeLoader(threads, pace=pace),
    "sequential": lambda threads, pace: SequentialLoader(threads, pace=pace),
}


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(1, "test-hand", LIMIT_S)
    yield made
    made.close()


def pieces_of(tiny: Tiny, store: KVStore) -> list[SegmentPiece]:
    """As a plan saw them in RAM."""
    name = tiny.engine.spec.fingerprint
    plan = plan_prompt(prompt(), name, store)
    found = Linkage(plan, make_linker("naive"), first_address(plan, name)).pieces()
    return [replace(piece, tier=RAM) for piece in found]


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_in_ram_takes_no_thread(tiny: Tiny, tmp_path: Path, threads: DiskThreads, name: str) -> None:
    disk, both, busy = ingested(tiny, tmp_path), open_store(tmp_path, codec="raw"), threading.Event()
    pieces = pieces_of(tiny, disk)
    for piece in pieces:
        assert both.get(piece.keys[0]) is not None
    task = threads.submit(lambda: busy.wait(LIMIT_S))
    loading = LOADERS[name](threads, None).begin(pieces, both)
    taken = [loading.take() for _ in range(1 + ALL)]
    assert [one.loaded.tier for one in taken if one is not None and one.loaded is not None] == ["ram"] * (1 + ALL)
    assert loading.ended
    assert not task.future.done()
    busy.set()


@pytest.mark.parametrize("name", LOADERS)
def test_what_has_left_ram_is_read_by_the_threads(tiny: Tiny, tmp_path: Path, threads: DiskThreads, name: str) -> None:
    store, gate = ingested(tiny, tmp_path), Gate(0)
    loading = LOADERS[name](threads, gate).begin(pieces_of(tiny, store), store)
    assert loading.take() is None, "whoever takes waits for no disk"
    gate.opened.set()
    found = [one.loaded for one in loading.deliveries() if one.loaded is not None]
    assert {one.tier for one in found} == {"disk"}
    assert len(found) == 1 + ALL
