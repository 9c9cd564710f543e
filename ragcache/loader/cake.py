"""Cake: the engine computes from the front while threads load from the back, until they meet (Jin et al., ICML 2025).

Algorithm 1 with its two pointers: the taker asks after each slice that it computes whether it is to compute another
one; the readers take the last piece that nobody has begun, by themselves. What is in RAM is handed over at once. Unlike
in the paper, no slice is begun that takes longer than all that is left takes to come, no piece that takes longer to
come than computing all up to its end, and what a slice overtakes is read no further: where one side is far the quicker,
it alone works.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar

from ragcache.loader import Loader, Loading, SegmentPiece
from ragcache.loader.beside import apart
from ragcache.loader.errands import Clock
from ragcache.loader.met import MetLoading
from ragcache.loader.reading import Pace
from ragcache.loader.rising import Risings
from ragcache.loader.threads import DiskThreads
from ragcache.rates import Rates
from ragcache.store.base import KVStore

AHEAD = 16  # pieces that are read or have been, and are not placed: what is computed meanwhile may take long


class CakeLoader(Loader):
    """Threads may share it, and so do all prompts its disk."""

    overlaps: ClassVar[bool] = True

    def __init__(
        self,
        threads: DiskThreads,
        *,
        pace: Pace | None = None,
        clock: Clock = perf_counter,
        ahead: int = AHEAD,
        claims: bool = True,
    ):
        """`claims`: whoever takes does; else all is read that is not dropped."""
        self._threads, self._pace, self._clock, self._ahead, self._claims = threads, pace, clock, ahead, claims
        self._risings = Risings(threads, threads.limit_s)

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        return self._begin(pieces, store, rates)

    def ahead(self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None) -> Loading:
        return self._begin(pieces, store, rates, self)

    def _begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None, turn: object = None
    ) -> Loading:
        known, told = rates or Rates(), (self._pace, self._clock, self._ahead, self._claims, turn)

        def begun(some: Sequence[SegmentPiece]) -> Loading:
            return MetLoading(self._threads, self._risings, some, store, known, *told)

        return begun(pieces) if self._claims else apart(pieces, begun)

    def close(self) -> None:
        self._risings.close()
        self._threads.close()
