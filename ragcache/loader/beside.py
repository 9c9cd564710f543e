"""What comes from near and what comes from far, each with its own turns and patience: neither waits for the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ragcache.loader import Delivery, Loading, SegmentPiece


def apart(pieces: Sequence[SegmentPiece], begin: Callable[[Sequence[SegmentPiece]], Loading]) -> Loading:
    """The pieces of one prompt; those of a bucket by themselves, where there are others too."""
    far = [piece for piece in pieces if piece.is_far]
    if not far or len(far) == len(pieces):
        return begin(pieces)
    return BesideLoading(begin(far), begin([piece for piece in pieces if not piece.is_far]))


class BesideLoading(Loading):
    def __init__(self, *loadings: Loading):
        """Asked in this order: whose reading takes longest first, so that it begins at once."""
        self._loadings = loadings

    def take(self) -> Delivery | None:
        return next((found for one in self._loadings if (found := one.take()) is not None), None)

    @property
    def ended(self) -> bool:
        return all(one.ended for one in self._loadings)

    @property
    def awaited(self) -> Sequence[Future[Any]]:
        return [future for one in self._loadings for future in one.awaited]

    def drop(self, index: int, until: int | None = None) -> None:
        for one in self._loadings:
            one.drop(index, until)

    def stop(self) -> None:
        for one in self._loadings:
            one.stop()
