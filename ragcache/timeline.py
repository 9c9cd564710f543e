"""What computed and what loaded when, for one prompt: a report's time line, and where its two sides met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LOAD, PLACE, COMPUTE, LINK = KINDS = ("load", "place", "compute", "link")
MOST = 256  # stretches of one report: a prompt of more pieces tells the first ones


@dataclass(frozen=True)
class Stretch:
    """Time that one thing was done in."""

    kind: str  # of KINDS: read from a tier; written to its place; computed meanwhile; repair, texts and question
    piece: int  # the chunk's place among the chunks; -1 for the System segment, and for a link
    first: int  # position of its first token
    last: int  # and behind its last one
    began: float  # seconds since the engine took the prompt up
    ended: float


@dataclass(frozen=True)
class Meeting:
    position: int  # what stands before it was computed, what stands behind was loaded
    seconds: float  # when both sides were there


def meeting(timeline: Sequence[Stretch]) -> Meeting | None:
    """None where one side did all."""
    computed = [one for one in timeline if one.kind == COMPUTE]
    front = max((one.last for one in computed), default=0)
    loaded = [one for one in timeline if one.kind in (LOAD, PLACE) and one.first >= front]
    if not (computed and loaded):
        return None
    return Meeting(front, max(one.ended for one in (*computed, *loaded)))
