"""How far a prompt is on its way from cached chunks to KV, and how far it goes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from ragcache.linking.base import Positions
from ragcache.loader import SegmentPiece

Affords = Callable[[Positions, int], bool]  # to compute these rows at a time, up to there


class Phase(Enum):
    NEW = auto()
    LOADING = auto()
    CHOOSE = auto()  # all is placed that will be
    PROBE = auto()  # to be ordered
    PROBING = auto()
    COMPUTE = auto()
    STORE = auto()  # what a capture has computed
    DONE = auto()


@dataclass(frozen=True)
class Front:
    """Of a piece, to be computed instead of loaded, with all that is lacking before it."""

    piece: SegmentPiece
    until: int  # the position behind it
    rows: Positions
    part: int | None = None  # `until` where the rest of the piece is loaded


def furthest(piece: SegmentPiece, ends: Iterable[int], lacking: Positions, affords: Affords) -> Front:
    """To one of these ends, the last of which is the piece's: as far as is afforded, and over some rows if any lack."""
    fronts = [Front(piece, until, lacking[: np.searchsorted(lacking, until)], until) for until in ends]
    last = fronts[-1] = Front(piece, fronts[-1].until, fronts[-1].rows)
    found = next((one for one in fronts if len(one.rows)), last)
    for front in fronts[fronts.index(found) + 1 :]:
        if not affords(front.rows, front.until):
            break
        found = front
    return found
