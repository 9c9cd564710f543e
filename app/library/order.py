"""The order of a collection: a short document stands beside near texts and is computed behind them, as a chunk of a
long document is behind those before it.

A chunk that was computed alone is the worst to reuse, and in a collection of entries, tickets or mails all chunks would
be. So its documents form runs of near texts. A run ends after RUN chunks: what was computed behind a document goes when
that goes, and should not be all that comes after it. The next run opens with the last chunks of the one before,
computed anew, so that none begins with nothing.

A longer document is a run of its own. It stands beside a near text too, and opens with the last chunks of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

RUN = 10  # chunks that are computed behind each other
OPENING = 2  # chunks that a run opens with
SHORT = 5  # chunks of the longest document that stands in a run; a longer one is a run of its own
FOR_EACH = 6  # a longer document opens with a chunk for so many of its own, and no more than a run does


@dataclass(frozen=True)
class Standing:
    """Where a document stands, and what its first chunk is computed behind."""

    place: float  # documents with lower ones stand before it
    behind: tuple[int, ...] = ()  # documents, in their order: its run so far, and what that opened with
    opening: int = 0  # so many of them opened it, with their last chunks


@dataclass(frozen=True)
class Neighbour:
    """A document that stands already."""

    id: int
    chunks: int
    standing: Standing
    lengths: tuple[int, ...] = ()  # chunks of each document in `standing.behind`

    @property
    def run(self) -> int:
        """Chunks of its run, with its own."""
        return self.chunks + sum(self.lengths[self.standing.opening :])


def opening_chunks(chunks: int) -> int:
    """That a document of so many opens with, where it begins a run."""
    return OPENING if chunks <= SHORT else min(OPENING, chunks // FOR_EACH)


def behind(neighbour: Neighbour, chunks: int, place: float) -> tuple[Standing, tuple[int, ...]]:
    """A document of so many chunks behind it, and the lengths of what that is computed behind."""
    there = [(one, length) for one, length in zip(neighbour.standing.behind, neighbour.lengths, strict=True) if length]
    opening = sum(length > 0 for length in neighbour.lengths[: neighbour.standing.opening])  # others may be gone
    documents = (*(one for one, _ in there), neighbour.id)
    lengths = (*(length for _, length in there), neighbour.chunks)
    if chunks <= SHORT and neighbour.run + chunks <= RUN:
        return Standing(place, documents, opening), lengths
    from_end = list(accumulate(reversed(lengths)))
    wanted = opening_chunks(chunks)
    needed = next((place for place, total in enumerate(from_end, 1) if total >= wanted), len(lengths))
    return Standing(place, documents[-needed:], needed), lengths[-needed:]


def between(before: float | None, after: float | None, more: int = 1) -> float | None:
    """A place between two, of which either may be open, with room for so many of them; None where there is none."""
    if before is None:
        return 0.0 if after is None else after - 1.0
    if after is None:
        return before + 1.0
    place = before + (after - before) / (more + 1)
    return place if before < place < after else None
