"""The contract of loaders: they bring the KV of cached segments, in blocks, to whichever engine places them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ragcache.slices import last_of, slices
from ragcache.store.base import KVStore, OpenEntry
from ragcache.store.findings import BUCKET
from ragcache.store.nearness import AT
from ragcache.types import Origin, Span, Variant, VariantKey

if TYPE_CHECKING:
    from ragcache.policy import Rates

SYSTEM = -1  # the System segment's place among the chunks
RECHECK_S = 0.05  # what is awaited may be given up meanwhile
UNKNOWN = -1.0  # seconds of reading that are not over


class PieceLost(Exception):
    """Upper layers of a piece do not come, whose lower ones are computed over by now: the prompt begins anew."""


@dataclass(frozen=True)
class SegmentPiece:
    """A cached segment to place."""

    index: int  # of the chunk; SYSTEM for the System segment
    start: int  # its first position
    keys: tuple[VariantKey, ...]  # variants that would serve, best first
    shared: bool = False  # others may see it: a copy that has lost something at rest does not serve
    tier: str = ""  # where the plan saw the first of them
    nbytes: int = 0  # to read there
    tokens: int = 0
    skip: int = 0  # leading tokens, beside these, that are computed instead

    def behind(self, position: int) -> SegmentPiece:
        """What of it is left where all before a position is computed."""
        gone = min(max(0, position - self.start - self.skip), self.tokens)
        left = self.tokens - gone
        nbytes = self.nbytes * left // self.tokens if gone else self.nbytes
        return replace(self, skip=self.skip + gone, tokens=left, nbytes=nbytes)

    @property
    def slices(self) -> list[Span]:
        """Positions that may be computed, one after the other, while the rest is read."""
        first = self.start + self.skip
        whole = Span(self.start, first + self.tokens)
        if self.index <= SYSTEM:
            return [Span(first, whole.end)]
        left = [Span(max(first, one.start), one.end) for one in slices(whole, self.tier) if one.end > first]
        return left or [Span(whole.end, whole.end)]

    @property
    def last_slice(self) -> int:
        """Where what is read first begins."""
        first = self.start + self.skip
        return first if self.index <= SYSTEM else max(first, last_of(Span(self.start, first + self.tokens), self.tier))

    @property
    def is_far(self) -> bool:
        """Beyond the disk."""
        return self.tier == BUCKET

    def opened(self, store: KVStore, key: VariantKey) -> OpenEntry | None:
        """One of its variants. What is not where it was planned, or was not planned, may be far all the same."""
        return store.bring(key) if self.is_far or AT.network else store.open(key)


@dataclass(frozen=True)
class PieceLoaded:
    """What became of a piece: all its blocks that are wanted were delivered (see `Loading.lags`), or none of its
    variants serves.
    """

    index: int
    chosen: int | None  # which of the piece's keys; None for none
    tier: str = ""
    nbytes: int = 0
    lossless: bool = True  # see Variant
    seconds: float = 0.0  # of reading, or UNKNOWN
    incidents: tuple[str, ...] = ()
    read: tuple[float, float] | None = None  # from when until when, by perf_counter

    def teach(self, rates: Rates, tier: str = "") -> None:
        """What its reading took, if that is over. `tier`: which it is counted for, where that is another."""
        if self.seconds != UNKNOWN:
            rates.observe_load(tier or self.tier, self.nbytes, self.seconds)


@dataclass(frozen=True)
class Block:
    """Some tokens of a piece in some layers, before their rotation: they may be placed in any order."""

    start: int  # position in the prompt of the first token
    layer: int  # the first one
    k: torch.Tensor  # [layers, kv_heads, tokens, head_dim]
    v: torch.Tensor
    turned: bool = False  # K stands rotated to its positions, as that of a stored prefix does

    @classmethod
    def whole(cls, variant: Variant, start: int) -> Block:
        return cls(start, 0, variant.k, variant.v)

    def behind(self, position: int) -> Block:
        """Without what lies before it; perhaps nothing is left."""
        gone = min(max(0, position - self.start), self.k.shape[2])
        return replace(self, start=self.start + gone, k=self.k[:, :, gone:], v=self.v[:, :, gone:]) if gone else self

    @property
    def layers(self) -> slice:
        return slice(self.layer, self.layer + self.k.shape[0])

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.k.shape[2])


@dataclass(frozen=True)
class Delivery:
    """Blocks of a piece, to be placed before more is taken; the piece's last one tells what became of it."""

    piece: SegmentPiece
    blocks: tuple[Block, ...] = ()
    loaded: PieceLoaded | None = None
    origin: Origin | None = None  # of the blocks; told with `loaded` where one was chosen


class Loading(ABC):
    """The pieces of one prompt, on their way. Used by one thread."""

    @abstractmethod
    def take(self) -> Delivery | None:
        """What comes next; None while nothing has come, and when all is delivered."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether all is delivered, or the rest is not wanted."""

    @property
    @abstractmethod
    def awaited(self) -> Sequence[Future[Any]]:
        """When one of them is done there is more to take; none where it comes as it is taken."""

    def claim(self, piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
        """Whether the taker, who could compute this piece in so many seconds, is to do so: it comes no more. Asked when
        there is nothing to take, of the first piece that has not come. `final`: all before it is, so that it can be
        computed at once, while others come. `until`: what of it stands before this position alone; the rest comes.
        """
        return False

    def affords(self, piece: SegmentPiece, seconds: float, until: int) -> bool:
        """Whether to compute for so long at a time, of the first piece that has not come what stands before a position:
        see `claim`. Whoever does not know takes as little as there is to take.
        """
        return False

    @abstractmethod
    def drop(self, index: int, until: int | None = None) -> None:
        """Nobody wants this piece any more, or what of it stands before a position: it is computed. What of it is on
        its way may come all the same.
        """

    @abstractmethod
    def stop(self) -> None:
        """Nobody wants the rest."""

    @property
    def lags(self) -> bool:
        """Whether pieces that are told as loaded lack upper layers, which `layer` brings."""
        return False

    def layer(self, layer: int) -> Iterator[Delivery]:
        """What is left of them up to this layer, to be placed before it is computed; waits for it. The last delivery of
        a piece tells once more what became of it. Raises PieceLost.
        """
        return iter(())

    def deliveries(self) -> Iterator[Delivery]:
        """All that is left, waiting for it."""
        while not self.ended:
            if (delivery := self.take()) is not None:
                yield delivery
            else:
                wait(self.awaited, RECHECK_S, FIRST_COMPLETED)


class Loader(ABC):
    """Threads may share it."""

    overlaps: ClassVar[bool] = False  # whether it leaves the front to be computed where that is sooner

    @abstractmethod
    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        """Bring each piece in its first variant that is there and sound, in blocks and an order of its own choosing. A
        bad entry is told with its piece; nothing is raised for it. `rates`: of whoever takes, to whom they are told.
        `linking`: seconds of the first pass that is then computed over the pieces, through all layers.
        """

    def ahead(self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None) -> Loading | None:
        """As `begin`, for a prompt that waits for its engine: it is read meanwhile, in one turn with all others that
        wait so. None where nothing is read before it is taken.
        """
        return None

    @property
    def whole(self) -> Loader:
        """One that brings a piece at once, for a prompt that begins anew since some of it was lost."""
        return self

    @abstractmethod
    def close(self) -> None:
        """End what runs for it; what is awaited still ends in a delivery."""
