"""Which loader brings a prompt: the one by which its first token is predicted to come sooner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ragcache.loader import SYSTEM, Loader, Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.reading import Pace
from ragcache.loader.threads import DiskThreads
from ragcache.rates import Rates, Work
from ragcache.slices import begins_pass
from ragcache.store.base import KVStore
from ragcache.store.findings import RAM

MARGIN = 0.95  # of what Cake takes: predictions err by some percent, and what it computes is exact
FIRST = 0.1  # of the layers, about as many as are read at once


class AutoLoader(Loader):
    """Computing from the front saves loading; loading by layers saves waiting for the last of it before the link."""

    overlaps: ClassVar[bool] = True

    def __init__(self, threads: DiskThreads, *, pace: Pace | None = None):
        self._cake, self._layerwise = CakeLoader(threads, pace=pace), LayerwiseLoader(threads, pace=pace)

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        rates = rates or Rates()
        layered = layered_seconds(pieces, rates, linking) < MARGIN * met_seconds(pieces, rates, linking)
        return (self._layerwise if layered else self._cake).begin(pieces, store, rates, linking)

    @property
    def whole(self) -> Loader:
        return self._layerwise.whole

    def close(self) -> None:
        self._cake.close()  # and the threads, which both read by


def layered_seconds(pieces: Sequence[SegmentPiece], rates: Rates, linking: float) -> float:
    """All is loaded, and what is computed over it waits for its first layers, or the last of it for the last layer."""
    loading = sum(_load_seconds(pieces, rates))
    return max(loading, linking) + FIRST * min(loading, linking)


def met_seconds(pieces: Sequence[SegmentPiece], rates: Rates, linking: float) -> float:
    """The front is computed while the rest is loaded, as is best; what is left to link is linked behind both."""
    loads = _load_seconds(pieces, rates)
    computed, left = 0.0, sum(loads)
    best = left
    for piece, load in zip(pieces, loads, strict=True):
        if piece.tier == RAM and piece.index != SYSTEM:
            break  # behind what is linked at once nothing is computed ahead
        for number, part in enumerate(piece.slices, 1):
            computed += rates.seconds(Work.of_rows(part.start, part.end) + Work(passes=begins_pass(number)))
            left -= load * (len(part) / piece.tokens if piece.tokens else 1.0)
            best = min(best, max(computed, left))
    return best + linking


def _load_seconds(pieces: Sequence[SegmentPiece], rates: Rates) -> list[float]:
    return [rates.load_seconds(piece.tier, piece.nbytes) for piece in pieces]
