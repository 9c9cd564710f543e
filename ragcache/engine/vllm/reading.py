"""What a worker fetches from the store for a request: each piece on a thread that may wait for the disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ragcache.address import address_of
from ragcache.engine.vllm.disk_threads import DiskThreads, Task
from ragcache.engine.vllm.orders import Capture, SegmentPiece
from ragcache.engine.vllm.taps import Recorder
from ragcache.errors import PromptError
from ragcache.faults import FAULTS, reason_of
from ragcache.store.base import Fetched, KVStore
from ragcache.types import Chunk, System, Variant, VariantKey

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


@dataclass(frozen=True)
class Placed:
    key: VariantKey
    ids: tuple[int, ...]
    lossless: bool


@dataclass
class Linking:
    """What a worker knows of a request that is being linked."""

    blocks: tuple[int, ...]
    skip: int
    room: torch.Tensor  # rotated K and V of what is placed: a probe reads the K
    reading: dict[int, tuple[SegmentPiece, Task[Brought]]] = field(default_factory=dict)
    placed: dict[int, slice] = field(default_factory=dict)
    variants: dict[int, Placed] = field(default_factory=dict)  # what they are
    fresh: list[slice] = field(default_factory=list)  # placed, and not in the paged cache yet
    recorder: Recorder | None = None  # of a capture that has begun

    def missing(self, question: int) -> list[int]:
        """Positions before the question that nothing right or cached lies at: they are computed after the probe."""
        there = set(range(self.skip)).union(*(range(span.start, span.stop) for span in self.placed.values()))
        return [position for position in range(question) if position not in there]

    def clear(self) -> None:
        self.room = self.room.new_empty(0)
        self.recorder = None


def bring(store: KVStore, piece: SegmentPiece) -> Brought:
    """The first of its variants that is there and sound."""
    incidents: list[str] = []
    for chosen, key in enumerate(piece.keys):
        try:
            fetched = store.get(key)
        except FAULTS as error:
            incidents.append(unused(error))
            continue
        if fetched is not None and piece.shared and not fetched.variant.lossless:
            incidents.append("cache entry not used: it has lost something at rest, and others may share its place")
            continue
        if fetched is not None:
            return Brought(chosen, fetched, tuple(incidents))
    return Brought(None, None, tuple(incidents))


def brought(readers: DiskThreads, task: Task[Brought]) -> Brought:
    """What is read, or why it is not: it is late, or broke."""
    if not task.future.done():
        readers.give_up(task)
        return Brought(None, None, ("a cached segment was not loaded in time, and is computed",))
    try:
        return task.future.result()
    except FAULTS as error:
        return Brought(None, None, (unused(error),))


def unused(error: Exception) -> str:
    told = f"cache entry not used: {reason_of(error)}"
    logger.warning("%s", told)
    return told


def misnamed(capture: Capture, linking: Linking) -> str | None:
    """Why what was placed and will be computed is not what the key says; None when it is."""
    before = [linking.variants[index] for index in sorted(linking.variants)]
    end = sum(len(placed.ids) for placed in before)
    first = capture.rows.positions[0]
    rows = capture.segment.ids[first - end : first - end + len(capture.rows.ids)]
    behind = sorted(linking.variants) == list(range(len(before))) and capture.start == end <= first
    if not behind or capture.rows.ids != rows or capture.rows.positions != tuple(range(first, first + len(rows))):
        return "it does not stand right behind what was placed"
    segment = Chunk(capture.segment.ids) if before else System(capture.segment.ids)
    try:
        found = address_of(capture.key.fingerprint, [(placed.key, placed.ids) for placed in before], segment)
    except PromptError as error:
        return str(error)
    return None if found == capture.key else "its key does not name what was placed before it"
