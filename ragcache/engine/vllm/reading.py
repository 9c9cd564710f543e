"""What a worker fetches from the store for a request: each piece on a thread that may wait for the disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ragcache.engine.vllm.disk_threads import Task
from ragcache.engine.vllm.faults import FAULTS, reason_of
from ragcache.engine.vllm.orders import Piece
from ragcache.engine.vllm.taps import Recorder
from ragcache.store.base import Fetched, KVStore
from ragcache.types import Variant

logger = logging.getLogger(__name__)


@dataclass
class Desk:
    """Where an engine in the same process hands variants over, so that a capture needs no store."""

    before: Sequence[Variant]
    captured: Variant | None = None


@dataclass(frozen=True)
class Brought:
    """A piece as the reader found it."""

    chosen: int | None
    fetched: Fetched | None
    incidents: tuple[str, ...]


@dataclass
class Linking:
    """What a worker knows of a request that is being linked."""

    blocks: tuple[int, ...]
    skip: int
    room: torch.Tensor  # rotated K and V of what is placed: a probe reads the K
    reading: dict[int, tuple[Piece, Task[Brought]]] = field(default_factory=dict)
    placed: dict[int, slice] = field(default_factory=dict)
    fresh: list[slice] = field(default_factory=list)  # placed, and not in the paged cache yet
    recorder: Recorder | None = None  # of a capture that has begun

    def clear(self) -> None:
        self.room = self.room.new_empty(0)
        self.recorder = None


def bring(store: KVStore, piece: Piece) -> Brought:
    """The first of its variants that is there and sound."""
    incidents: list[str] = []
    for chosen, key in enumerate(piece.keys):
        try:
            fetched = store.get(key)
        except FAULTS as error:
            incidents.append(unused(error))
            continue
        if fetched is not None:
            return Brought(chosen, fetched, tuple(incidents))
    return Brought(None, None, tuple(incidents))


def unused(error: Exception) -> str:
    told = f"cache entry not used: {reason_of(error)}"
    logger.warning("%s", told)
    return told
