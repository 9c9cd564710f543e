"""What a worker knows of a request that is being linked, and of what was placed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ragcache.engine.vllm.orders import Compute, Load, Orders, Probe, Within
from ragcache.engine.vllm.taps import Recorder
from ragcache.loader import Block, Delivery, Loading, PieceLoaded, SegmentPiece
from ragcache.types import Lineage, Origin, Variant, VariantKey

HANDED = "handed"  # the tier of what came from the engine's own process


@dataclass
class Exchange:
    """Where an engine in the same process hands variants over, so that a capture needs no store."""

    before: Sequence[Variant]
    captured: Variant | None = None

    def delivery(self, piece: SegmentPiece) -> Delivery:
        handed = self.before[piece.index]
        loaded = PieceLoaded(piece.index, 0, HANDED, handed.nbytes, handed.lossless)
        return Delivery(piece, (Block.whole(handed, piece.start),), loaded, handed.origin)


class ReadAhead:
    """What is read for requests that wait in vLLM's queue."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[Sequence[SegmentPiece], Loading]] = {}

    def obey(self, orders: Orders, ahead: Callable[[Sequence[SegmentPiece]], Loading | None], linking: Within) -> None:
        """`ahead`: of the loader that there is. `linking`: what breaks within it is a request's alone."""
        for one in orders.fetch:
            with linking(one.request):
                if (loading := ahead(one.pieces)) is not None:
                    self._begun[one.request] = (one.pieces, loading)
        for request in orders.forgo:
            with linking(request):
                if request in self._begun:
                    self._begun.pop(request)[1].stop()

    def take(self, load: Load) -> Loading | None:
        """With what is wanted now alone; None where nothing was begun, or more is wanted."""
        pieces, loading = self._begun.pop(load.request, ((), None))
        if loading is None:
            return None
        if not set(load.pieces) <= set(pieces):
            loading.stop()
            return None
        for piece in set(pieces).difference(load.pieces):
            loading.drop(piece.index)
        return loading


@dataclass
class Linking:
    """What a worker knows of a request that is being linked."""

    blocks: tuple[int, ...]
    skip: int
    room: torch.Tensor  # rotated K and V of what is placed: a probe reads the K
    loading: Loading | None = None
    placed: dict[int, slice] = field(default_factory=dict)
    variants: dict[int, Origin] = field(default_factory=dict)  # what they are
    fresh: list[slice] = field(default_factory=list)  # placed, and not in the paged cache yet
    broken: dict[int, str] = field(default_factory=dict)  # pieces of which a block could not be placed, and why
    dropped: set[int] = field(default_factory=set)  # pieces that are computed instead
    fronts: dict[int, int] = field(default_factory=dict)  # positions by piece, before which it is computed
    ahead: set[int] = field(default_factory=set)  # positions that were computed while others are loaded
    recorder: Recorder | None = None  # of a capture that has begun

    def has(self, piece: SegmentPiece, origin: Origin) -> None:
        """All of its blocks are placed, or those of its lower layers."""
        self.placed[piece.index] = slice(max(piece.start, self.front(piece)), piece.start + len(origin))
        self.variants[piece.index] = origin

    def front(self, piece: SegmentPiece) -> int:
        return self.fronts.get(piece.index, 0)

    @property
    def behind(self) -> list[tuple[VariantKey, Lineage]]:
        """What is placed, in its order."""
        return [(placed.key, placed.lineage) for _, placed in sorted(self.variants.items())]

    def missing(self, question: int) -> list[int]:
        """Positions before the question that nothing right or cached lies at: they are computed after the probe."""
        there = self.ahead.union(range(self.skip), *(range(span.start, span.stop) for span in self.placed.values()))
        return [position for position in range(question) if position not in there]

    def drop(self, index: int, until: int | None = None) -> None:
        if self.loading is not None:
            self.loading.drop(index, until)
        if until is not None:
            self.fronts[index] = until
            return
        self.dropped.add(index)
        self.placed.pop(index, None)
        self.variants.pop(index, None)

    def computes(self, positions: Sequence[int]) -> None:
        """While others are loaded."""
        self.ahead.update(positions)
        self.room[0][:, :, list(positions)] = 0  # until their K is kept there

    def keys(self, probe: Probe) -> torch.Tensor:
        """That the probe reads [layers, kv_heads, positions, head_dim]."""
        keys = self.room[0, probe.layers.start : probe.layers.stop, :, : probe.rows.positions[-1] + 1]
        known = np.zeros(keys.shape[2], dtype=bool)
        known[[*probe.rows.positions, *self.ahead]] = True
        for span in self.placed.values():
            known[span] = True
        keys[:, :, torch.from_numpy(~known)] = 0  # what vLLM's prefix cache alone holds: nobody asks about it
        return keys

    def clear(self) -> None:
        if self.loading is not None:
            self.loading.stop()
        self.room = self.room.new_empty(0)
        self.recorder = None


def rooms_ahead(slices: Sequence[Compute], linkings: Mapping[str, Linking]) -> dict[int, torch.Tensor]:
    """By slice, where a probe will read its keys."""
    known = {place: one for place, one in enumerate(slices) if one.ahead and one.request in linkings}
    for one in known.values():
        linkings[one.request].computes(one.rows.positions)
    return {place: linkings[one.request].room for place, one in known.items()}
