"""Pieces that nobody has begun to bring, and what they come to."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from ragcache.loader import SegmentPiece
from ragcache.rates import Rates, Work
from ragcache.store.findings import BUCKET


class Waiting:
    """Of one prompt, by their places. Their sums are kept by tier: there are as many decisions as pieces, and none of
    them is to look at all. Whoever owns them locks.
    """

    def __init__(self, pieces: Iterable[SegmentPiece] = ()):
        self._pieces: list[SegmentPiece] = []
        self._tiers, self._reads, self._nbytes = Counter[str](), Counter[str](), Counter[str]()
        self._unknown = 0  # pieces whose tokens are not known
        self._work = Work()  # of each by itself
        for piece in pieces:
            self.add(piece)

    def __len__(self) -> int:
        return len(self._pieces)

    def __contains__(self, piece: SegmentPiece) -> bool:
        """Or what is left of it."""
        place = self._place(piece)
        return place < len(self._pieces) and _order(self._pieces[place]) == _order(piece)

    def has(self, tier: str) -> bool:
        return self._tiers[tier] > 0

    def last(self, count: int) -> list[SegmentPiece]:
        """Of the prompt: those that are read first."""
        return self._pieces[-count:]

    def add(self, piece: SegmentPiece) -> None:
        insort(self._pieces, piece, key=_order)
        self._count(piece, 1)

    def pop(self) -> SegmentPiece:
        """The last of the prompt."""
        self._count(piece := self._pieces.pop(), -1)
        return piece

    def last_of(self, far: Sequence[bool]) -> SegmentPiece | None:
        """The last of the prompt of those that are far, or of those that are not."""
        beyond = self._tiers[BUCKET]
        if not any(beyond if one else len(self) - beyond for one in far):
            return None
        return next(piece for piece in reversed(self._pieces) if piece.is_far in far)

    def remove(self, piece: SegmentPiece) -> None:
        assert piece in self, piece
        self._count(self._pieces.pop(self._place(piece)), -1)

    def trim(self, piece: SegmentPiece, until: int) -> None:
        """All before a position is computed."""
        assert piece in self, piece
        place = self._place(piece)
        self._count(self._pieces[place], -1)
        self._pieces[place] = rest = self._pieces[place].behind(until)
        self._count(rest, 1)

    def drop(self, index: int) -> None:
        for piece in self.of(index):
            self.remove(piece)

    def of(self, index: int) -> list[SegmentPiece]:
        return [one for one in self._pieces if one.index == index]

    def seconds(self, rates: Rates) -> float:
        """To read them, one after the other."""
        return sum(rates.load_seconds(tier, self._nbytes[tier], reads) for tier, reads in self._reads.items())

    @property
    def work(self) -> Work | None:
        """To compute them, each by itself; None where that is not known of all."""
        return None if self._unknown else self._work

    def _place(self, piece: SegmentPiece) -> int:
        return bisect_left(self._pieces, _order(piece), key=_order)

    def _count(self, piece: SegmentPiece, sign: int) -> None:
        """All are whole numbers, or halves: what is taken off leaves nothing behind."""
        self._tiers[piece.tier] += sign
        if piece.nbytes > 0:  # one of unknown size takes no time that is known
            self._reads[piece.tier] += sign
            self._nbytes[piece.tier] += sign * piece.nbytes
        self._unknown += sign * (not piece.tokens)
        first = piece.start + piece.skip
        self._work += (Work.of_rows(first, first + piece.tokens) + Work(passes=1)) * sign


def _order(piece: SegmentPiece) -> tuple[int, int]:
    """A chunk comes before the block of a stored prefix that begins where it does."""
    return piece.start, -piece.index
