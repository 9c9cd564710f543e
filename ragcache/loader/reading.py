"""A piece from its store: the first of its variants that is there and sound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter

from ragcache.errors import FAULTS, reason_of
from ragcache.loader import Block, Delivery, PieceLoaded, SegmentPiece
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.nearness import Beyond

logger = logging.getLogger(__name__)
# Of a prompt, at rest, that are read or have been and are not placed yet: a whole one would be held twice. One piece
# alone may be larger.
AHEAD_BYTES = 256 << 20
LOSSY = "cache entry not used: it has lost something at rest, and others may share its place"
Pace = Callable[[int], None]  # called before so many bytes are read; it may wait


class Unwanted(Exception):
    """Nobody waits for what is being read."""


def bring(
    store: KVStore, piece: SegmentPiece, pace: Pace | None = None, skipped: Callable[[], int | None] = lambda: 0
) -> Delivery:
    """In the blocks that it was stored in, the last one first. `skipped`: tokens at its beginning that nobody wants any
    more, asked before each block; None for all of it. Raises Unwanted then, and Beyond.
    """
    incidents, beyond = list[str](), False
    for chosen, key in enumerate(piece.keys):
        started = perf_counter()
        try:
            if (entry := piece.opened(store, key)) is None:
                logger.info("variant %s vanished between plan and load", key.digest[:12])
                continue
            with entry:
                origin = entry.origin()
                if piece.shared and not origin.lineage.lossless:
                    incidents.append(LOSSY)
                    continue
                blocks = tuple(_blocks(entry, piece.start, pace, skipped))[::-1]
                ended = perf_counter()
        except Beyond:
            beyond = True
            continue
        except FAULTS as error:
            incidents.append(unused(error))
            continue
        nbytes = entry.nbytes * sum(block.k.shape[2] for block in blocks) // entry.shape[2]
        told = (entry.tier, nbytes, origin.lineage.lossless, ended - started, tuple(incidents))
        return Delivery(piece, blocks, PieceLoaded(piece.index, chosen, *told, (started, ended)), origin)
    if beyond:
        raise Beyond
    return nothing(piece, *incidents)


def at_hand(store: KVStore, piece: SegmentPiece) -> Delivery | None:
    """Where the piece's best variant is there without waiting; whatever is amiss with it shows when it is brought."""
    try:
        if not piece.keys or (entry := store.at_hand(piece.keys[0])) is None:
            return None
        started = perf_counter()
        with entry:
            origin = entry.origin()
            if piece.shared and not origin.lineage.lossless:
                return None
            blocks = tuple(_blocks(entry, piece.start, None, lambda: 0))[::-1]
    except FAULTS:
        return None
    told = (entry.tier, entry.nbytes, origin.lineage.lossless, perf_counter() - started)
    return Delivery(piece, blocks, PieceLoaded(piece.index, 0, *told), origin)


def in_memory(store: KVStore, piece: SegmentPiece) -> bool:
    """As far as can be told without taking it."""
    ram = store.memory
    return bool(piece.keys) and ram is not None and ram.holds(piece.keys[0])


def _blocks(entry: OpenEntry, start: int, pace: Pace | None, skipped: Callable[[], int | None]) -> Iterator[Block]:
    for number, span in reversed(list(enumerate(entry.blocks))):
        skip = skipped()
        if skip is None or skip >= entry.shape[2]:
            raise Unwanted
        if span.end <= skip:
            return
        if pace is not None:
            pace(entry.nbytes * len(span) // entry.shape[2])
        yield Block(start + span.start, 0, *entry.read(number, range(entry.shape[0])))


def nothing(piece: SegmentPiece, *incidents: str) -> Delivery:
    """The end of a piece that is to be computed."""
    return Delivery(piece, loaded=PieceLoaded(piece.index, None, incidents=incidents))


def unused(error: Exception) -> str:
    told = f"cache entry not used: {reason_of(error)}"
    logger.warning("%s", told)
    return told
