"""A loader that does nothing in order, for what must not depend on it, and rates of known speeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest

from ragcache.engine.vllm.meeting import Approach
from ragcache.linking.base import Positions
from ragcache.loader import Block, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.reading import bring
from ragcache.loader.sequential import InTurn
from ragcache.policy import Rates
from ragcache.store.base import KVStore


def known_rates(compute_s: float, load_s: float, a_read: float = 0.0) -> Rates:
    """By which a row takes so long, a byte of the disk, and each read beside."""
    return Rates({"work": [0.0, compute_s, 0.0, 0.0], "loads": {"disk": [a_read, load_s, 0.1]}})


@contextmanager
def small_parts(tokens: int) -> Iterator[None]:
    """Chunks of more than so many tokens are long, and so many are read, and computed, at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragcache.store.entry.block_for", lambda _: tokens)
        patch.setattr("ragcache.slices.BLOCK", tokens)
        patch.setattr("ragcache.slices.FINE", tokens)
        yield


class DecidedApproach(Approach):
    """What is claimed does not go by when anything comes; one slice at a time."""

    def __init__(self) -> None:
        pass

    def looked(self, when: float) -> None:
        pass

    def came(self, piece: SegmentPiece) -> None:
        pass

    def affords(self, piece: SegmentPiece, rows: Positions, tokens: int, until: int) -> bool:
        return False


class ScatteredLoader(Loader):
    """Every piece in blocks of a layer and some tokens, of all pieces mixed."""

    def __init__(self, seed: int = 0, tokens: int = 7):
        self._random, self._tokens = Random(seed), tokens
        self.closed = False

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        ends = [bring(store, piece) for piece in pieces]
        blocks = [(end, block) for end in ends for whole in end.blocks for block in self._cut(whole)]
        self._random.shuffle(blocks)
        left = {end.piece.index: sum(one is end for one, _ in blocks) for end in ends}
        deliveries = [end for end in ends if not end.blocks]
        for end, block in blocks:
            left[end.piece.index] -= 1
            last = left[end.piece.index] == 0
            deliveries.append(Delivery(end.piece, (block,), end.loaded if last else None, end.origin))
        return InTurn(partial(deliveries.__getitem__, place) for place in range(len(deliveries)))

    def _cut(self, block: Block) -> list[Block]:
        layers, tokens = range(block.k.shape[0]), range(0, block.k.shape[2], self._tokens)
        return [
            Block(
                block.start + first,
                block.layer + layer,
                block.k[layer : layer + 1, :, first : first + self._tokens],
                block.v[layer : layer + 1, :, first : first + self._tokens],
            )
            for layer in layers
            for first in tokens
        ]

    def close(self) -> None:
        self.closed = True
