"""Whoever takes meets readers that begin and end reads at any moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ragcache.loader import Delivery, PieceLoaded, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store import open_store
from ragcache.types import VariantKey

PIECES, PROMPTS = 60, 1000


@pytest.fixture
def restless() -> Iterator[None]:
    """Python changes from thread to thread fifty times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_quick_reads_and_many_pieces_disturb_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(store: Any, piece: SegmentPiece, *more: Any) -> Delivery:
        return Delivery(piece, (), PieceLoaded(piece.index, 0, "disk", piece.nbytes))

    monkeypatch.setattr("ragcache.loader.met.bring", quick)
    threads, store = DiskThreads(2, "test-take", 20.0), open_store(codec="raw")
    key = VariantKey("engine", "system", (), "chunk")
    pieces = [SegmentPiece(place, 10 * place, (key,), False, "disk", 1000, 10) for place in range(PIECES)]
    for _ in range(PROMPTS):
        loading, found = CakeLoader(threads).begin(pieces, store), list[int]()
        while not loading.ended:  # without a pause
            found += [one.piece.index for one in [loading.take()] if one is not None]
        assert sorted(found) == list(range(PIECES))
    threads.close()
