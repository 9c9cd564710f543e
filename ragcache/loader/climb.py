"""A piece of a prompt that is read from its first layer up, a few layers at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil

from ragcache.errors import FAULTS
from ragcache.loader import UNKNOWN, Block, PieceLoaded, SegmentPiece
from ragcache.loader.reading import LOSSY, Pace, unused
from ragcache.loader.threads import Task
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.nearness import Beyond
from ragcache.types import Origin

READ_BYTES = 512 << 10  # of a piece in one read, in whole layers: more of them take longer by themselves


@dataclass(frozen=True)
class Part:
    """Some layers of a piece."""

    end: int
    blocks: tuple[Block, ...]
    nbytes: int


@dataclass(eq=False)
class Climb:
    """One reads it and one takes of it, at the same time; whoever shares it holds a lock over what it says of both."""

    piece: SegmentPiece
    entry: OpenEntry | None = None  # while it is open
    tier: str = ""
    nbytes: int = 0
    chosen: int | None = None
    origin: Origin | None = None
    layers: int = 1  # of the model; known once it is open
    read: int = 0  # layers that have been
    placed: int = 0  # layers that were handed over
    parts: deque[Part] = field(default_factory=deque)  # that were read and not handed over
    task: Task[None] | None = None  # reads the next part
    reading: bool = False  # a thread is at the entry
    is_far: bool = False  # as planned, or as it turned out
    wanted: bool = True
    told: bool = False  # the taker knows what became of it
    incidents: list[str] = field(default_factory=list)
    lost: bool = False
    seconds: float = 0.0
    span: tuple[float, float] | None = None  # from when until when it was read

    def next(self, store: KVStore, pace: Pace | None) -> Part | None:
        """The next layers; None where there is no variant that serves. Raises FAULTS, and Beyond."""
        return self._opened(store, pace) if self.entry is None else self._part(self.entry, pace)

    def _opened(self, store: KVStore, pace: Pace | None) -> Part | None:
        """The first layers of the first variant that is there and sound so far."""
        beyond = False
        for chosen, key in enumerate(self.piece.keys):
            entry = None
            try:
                if (entry := self.piece.opened(store, key)) is None:
                    continue  # it vanished between plan and load
                self.origin, self.layers, self.chosen = entry.origin(), entry.shape[0], chosen
                if self.piece.shared and not self.origin.lineage.lossless:
                    self.incidents.append(LOSSY)
                else:
                    part = self._part(entry, pace)
                    self.tier, self.nbytes = entry.tier, entry.nbytes
                    self.entry, entry = entry, None
                    return part
            except Beyond:
                beyond = True
            except FAULTS as error:
                self.incidents.append(unused(error))
            finally:
                if entry is not None:
                    entry.close()
        self.chosen = None
        if beyond:
            raise Beyond
        return None

    def _part(self, entry: OpenEntry, pace: Pace | None) -> Part:
        a_layer = max(1, entry.nbytes // self.layers)
        end = min(self.layers, self.read + ceil(READ_BYTES / a_layer))
        layers, blocks = range(self.read, end), list[Block]()
        for number, span in enumerate(entry.blocks):
            if pace is not None:
                pace(len(layers) * a_layer * len(span) // entry.shape[2])
            blocks.append(Block(self.piece.start + span.start, layers.start, *entry.read(number, layers)))
        return Part(end, tuple(blocks), a_layer * len(layers))

    def loaded(self, *, whole: bool) -> PieceLoaded:
        """Before its last layer has come nobody knows what its reading takes."""
        assert self.origin is not None, "it was opened"
        told = (self.tier, self.nbytes, self.origin.lineage.lossless)
        seconds, span = (self.seconds, self.span) if whole else (UNKNOWN, None)
        return PieceLoaded(self.piece.index, self.chosen, *told, seconds, tuple(self.incidents), span)

    def taken_off(self) -> OpenEntry | None:
        """For whoever closes it."""
        entry, self.entry = self.entry, None
        return entry
