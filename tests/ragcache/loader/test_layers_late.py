"""Layers that come late, or not at all, and what that costs the pieces beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ragcache.cache import ChunkCache
from ragcache.loader import PieceLost, SegmentPiece
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store import open_store
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.disk import DiskTier
from ragcache.types import VariantKey
from tests.cold_prompts import DOCUMENT, LEAD, LIMIT_S, ingested
from tests.loaders import known_rates
from tests.tiny import Tiny

LAYERS = 3
LONG = 1e9  # seconds of linking: one layer of each piece is enough to begin with


@pytest.fixture(autouse=True)
def _a_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.loader.climb.READ_BYTES", 1)


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What does not answer until the end of the test."""
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def store(tiny: Tiny, tmp_path: Path) -> KVStore:
    assert tiny.engine.spec.layers == LAYERS
    return ingested(tiny, tmp_path)


@pytest.fixture
def pieces(tiny: Tiny, store: KVStore) -> Sequence[SegmentPiece]:
    made = list(ChunkCache(tiny.engine, store).ingest(LEAD, DOCUMENT))[:4]
    return [
        SegmentPiece(place, 40 * place, (one.key,), tokens=len(one), nbytes=one.nbytes, tier="disk")
        for place, one in enumerate(made)
    ]


def opening(store: KVStore, before: Callable[[VariantKey], object]) -> KVStore:
    plain = store.open

    def opened(key: VariantKey) -> OpenEntry | None:
        before(key)
        return plain(key)

    store.open = opened  # type: ignore[method-assign]
    return store


def test_what_is_of_unknown_size_and_computed_over_by_nobody_comes_whole(
    store: KVStore, pieces: Sequence[SegmentPiece]
) -> None:
    """As that which a capture stands behind."""
    threads = DiskThreads(2, "test-late", LIMIT_S)
    loading = LayerwiseLoader(threads).begin([replace(one, nbytes=0, tier="") for one in pieces], store)
    told = [one.piece.index for one in loading.deliveries() if one.loaded is not None and one.loaded.chosen == 0]
    assert sorted(told) == [0, 1, 2, 3]
    assert not loading.lags
    threads.close()


def test_one_file_that_is_late_costs_no_other(
    store: KVStore, pieces: Sequence[SegmentPiece], held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where upper layers of the others have not been asked for, since so much lies there already."""
    monkeypatch.setattr("ragcache.loader.layerwise.AHEAD_BYTES", 1)
    bad = pieces[1].keys[0]
    found, asked = dict[int, int | None](), threading.Event()

    def before(key: VariantKey) -> None:
        if key == bad:
            asked.set()
            held.wait(LIMIT_S)

    opening(store, before)
    # Time passes for it alone: once all others have been handed over.
    threads = DiskThreads(4, "test-late", 0.5, lambda: float(asked.is_set() and len(found) == 3))
    loader = LayerwiseLoader(threads, clock=lambda: 0.0)
    loading = loader.begin(pieces, store, known_rates(1.0, 1.0), LONG)
    for one in loading.deliveries():
        if one.loaded is not None:
            found[one.loaded.index] = one.loaded.chosen
    assert found == {0: 0, 1: None, 2: 0, 3: 0}
    upper = [one for layer in range(LAYERS) for one in loading.layer(layer)]
    assert sum(one.loaded is not None for one in upper) == 3
    held.set()
    threads.close()


def test_a_file_has_its_time_for_all_of_its_layers(
    store: KVStore, pieces: Sequence[SegmentPiece], held: threading.Event
) -> None:
    """Not that time for each part of it again."""
    now = [0.0]

    def pace(nbytes: int) -> None:
        if now[0] > 1.0:
            held.wait(LIMIT_S)
        now[0] += 0.6

    threads = DiskThreads(1, "test-late", 1.0, lambda: now[0])
    loader = LayerwiseLoader(threads, pace=pace, clock=lambda: now[0])
    loading = loader.begin(pieces[:1], store, known_rates(1.0, 1.0), LONG)
    assert [one.loaded.chosen for one in loading.deliveries() if one.loaded is not None] == [0]
    assert len(list(loading.layer(1))) == 1
    with pytest.raises(PieceLost):
        list(loading.layer(2))
    held.set()
    threads.close()


def test_nobody_waits_for_what_rises_into_memory(
    tiny: Tiny,
    tmp_path: Path,
    store: KVStore,
    pieces: Sequence[SegmentPiece],
    held: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk is asked once more then, and may not answer."""
    plain, asked, answered = DiskTier.holds, threading.Event(), threading.Event()

    def holds(tier: DiskTier, key: VariantKey) -> bool:
        asked.set()
        held.wait(LIMIT_S)
        answered.set()
        return plain(tier, key)

    monkeypatch.setattr(DiskTier, "holds", holds)
    threads = DiskThreads(1, "test-late", LIMIT_S)
    loading = LayerwiseLoader(threads).begin(pieces[:1], open_store(tmp_path, codec="raw"))
    assert asked.wait(LIMIT_S)
    list(loading.deliveries())
    loading.stop()
    assert not answered.is_set()
    held.set()
    threads.close()
