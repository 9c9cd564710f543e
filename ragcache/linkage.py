"""A prompt as it was planned, and the pieces of it that are to be loaded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from ragcache.linking.base import Linker
from ragcache.loader import SYSTEM, SegmentPiece
from ragcache.planning import Plan, PlannedChunk
from ragcache.types import Span, VariantKey

BLOCKS = SYSTEM - 1  # index of the piece that is the first block of a stored prefix; the others count down


@dataclass(frozen=True)
class Linkage:
    """A prompt as it was planned, and how it is linked."""

    plan: Plan
    linker: Linker
    system: VariantKey | None  # of the segment that stands first, where it is System
    exact: int = 0  # positions before this one hold the KV of a plain prefill: others may share it

    @property
    def tokens(self) -> int:
        return len(self.plan.ids)

    def span(self, index: int) -> Span:
        """Positions of a piece, by its index."""
        if index <= BLOCKS:
            return self.plan.prefix[BLOCKS - index].span
        return Span(0, self.plan.head) if index == SYSTEM else self.plan.chunks[index].span

    def pieces(self) -> tuple[SegmentPiece, ...]:
        """A linker that recomputes all loads nothing."""
        if self.linker.recompute_all:
            return ()
        pieces = [self._piece(chunk) for chunk in self.plan.cached]
        for place, block in enumerate(self.plan.prefix):
            info = block.info
            pieces.append(
                SegmentPiece(BLOCKS - place, block.start, (info.key,), True, info.tier, info.nbytes, info.tokens)
            )
        pieces.sort(key=lambda piece: piece.start)
        if self.system is None:
            return tuple(pieces)
        where = next(((info.tier, info.nbytes, info.tokens) for info in self.plan.system_infos), ("", 0))
        return (SegmentPiece(SYSTEM, 0, (self.system,), self.exact > 0, *where), *pieces)

    def _piece(self, chunk: PlannedChunk) -> SegmentPiece:
        """Where others may share the KV, an exact variant that is bad is not replaced by one that is not exact."""
        shared = chunk.span.start < self.exact
        serve = takewhile(lambda found: found.exact or not shared, chunk.candidates)
        keys, best = tuple(found.info.key for found in serve), chunk.candidates[0].info
        return SegmentPiece(chunk.index, chunk.span.start, keys, shared, best.tier, best.nbytes, len(chunk.segment))
