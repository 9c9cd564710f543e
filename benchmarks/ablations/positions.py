"""K that stays where it was captured, as a cache would hold it that keeps K with its RoPE on (Cache-Craft, table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from ragcache.loader import SYSTEM, Block, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.reading import bring
from ragcache.loader.sequential import InTurn
from ragcache.policy import Rates
from ragcache.rope import Rope
from ragcache.store.base import KVStore
from ragcache.types import VariantKey


class OldPositions(Loader):
    """Each chunk lies at its place in the prompt, its K turned to where it stood at its capture: right behind the
    System segment and the chunks of its context.
    """

    def __init__(self, rope: Rope):
        self._rope = rope

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        return InTurn(partial(self._brought, store, piece) for piece in pieces)

    def close(self) -> None:
        """Nothing runs for it."""

    def _brought(self, store: KVStore, piece: SegmentPiece) -> Delivery:
        delivery = bring(store, piece)
        if piece.index == SYSTEM or delivery.origin is None:
            return delivery
        moved = captured_at(store, delivery.origin.key) - piece.start
        return replace(delivery, blocks=tuple(self._turned(block, moved) for block in delivery.blocks))

    def _turned(self, block: Block, moved: int) -> Block:
        k = torch.empty_like(block.k)
        self._rope.rotate_into(k, block.k, slice(block.span.start + moved, block.span.stop + moved))
        return replace(block, k=k, turned=True)


def captured_at(store: KVStore, key: VariantKey) -> int:
    """The position of its first token then."""
    (found,) = {info.profile.lengths for info in store.variants(key.family) if info.key == key}
    return sum(found)
