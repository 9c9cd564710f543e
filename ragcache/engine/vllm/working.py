"""The worker's side: fetches, places, probes and computes what the scheduler's side ordered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np
import torch

from ragcache.address import address_of
from ragcache.engine.vllm.cores import leave_cores
from ragcache.engine.vllm.orders import (
    Answers,
    Capture,
    Compute,
    Load,
    Loaded,
    Orders,
    Piece,
    Probe,
    Probed,
    Timed,
    Told,
)
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import PromptError, StoreError
from ragcache.store.base import Fetched, KVStore
from ragcache.types import Chunk, System, Variant, VariantKey

logger = logging.getLogger(__name__)
READERS = 2  # threads that read files while the model computes
IDLE_WAIT_S = 0.005  # how long a step without other work waits for a file, instead of spinning
PLACE_S = 0.004  # of a step with other work: so long it places what has been read; the rest waits for the next


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
    reading: dict[int, tuple[Piece, Future[Brought]]] = field(default_factory=dict)
    placed: dict[int, slice] = field(default_factory=dict)
    variants: dict[int, Placed] = field(default_factory=dict)  # what they are
    fresh: list[slice] = field(default_factory=list)  # placed, and not in the paged cache yet

    def clear(self) -> None:
        self.room = self.room.new_empty(0)
        self.reading.clear()


class LinkWorker:
    """One per rank. Everything but the reading runs in the worker's one thread, between vLLM's forwards."""

    def __init__(self, spans: SpanRunner, store: KVStore):
        """`store`: brings those K/V heads of the model that this rank holds."""
        self.store = store
        self.spans = spans
        self.desks: dict[str, Desk] = {}
        self._linkings: dict[str, Linking] = {}
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="ragcache-read", initializer=leave_cores)
        self._answers = Answers()

    def obey(self, orders: Orders, beside: int = 0) -> None:
        """`beside`: so many rows may join the forward that vLLM runs next."""
        for request in orders.release:
            if request in self._linkings:
                self._linkings[request].clear()
        for load in orders.load:
            self._start(load)
        for request, pieces in orders.drop:
            for index in pieces:
                self._linkings[request].reading.pop(index, None)
        self._place(orders.idle and not (orders.probe or orders.compute or orders.capture))
        for probe in orders.probe:
            self._probe(probe)
        for capture in orders.capture:
            self._capture(capture)
        if orders.compute:
            self._compute(orders.compute, beside)
        for request in orders.finish:
            self._linkings.pop(request, None)

    @property
    def room_bytes(self) -> int:
        """Of all requests that load (for tests and figures)."""
        return sum(linking.room.nbytes for linking in self._linkings.values())

    @property
    def busy(self) -> bool:
        """Whether some file is still being read."""
        return any(linking.reading for linking in self._linkings.values())

    def take_answers(self) -> Answers | None:
        answers, self._answers = self._answers, Answers()
        return answers or None

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)

    # -- load -------------------------------------------------------------------------------------------------------

    def _start(self, load: Load) -> None:
        linking = self._linkings[load.request] = Linking(load.blocks, load.skip, self.spans.room(load.room))
        for piece in load.pieces:
            if load.desk:
                self._place_piece(load.request, linking, piece, self._handed(load.desk, piece))
            else:
                linking.reading[piece.index] = (piece, self._read(piece))
        self._write(load.request, linking)

    def _handed(self, desk: str, piece: Piece) -> Brought:
        if desk not in self.desks:  # whoever asked has left
            return Brought(None, None, ())
        handed = self.desks[desk].before[piece.index]
        return Brought(0, Fetched(handed, "ram", handed.nbytes, 0.0), ())

    def _read(self, piece: Piece) -> Future[Brought]:
        try:
            return self._readers.submit(self._bring, piece)
        except RuntimeError:  # Python ends its pools before it ends the engine: nobody waits for this answer any more
            nothing: Future[Brought] = Future()
            nothing.set_result(Brought(None, None, ()))
            return nothing

    def _bring(self, piece: Piece) -> Brought:
        incidents: list[str] = []
        for chosen, key in enumerate(piece.keys):
            try:
                fetched = self.store.get(key)
            except StoreError as error:
                logger.warning("cache entry not used: %s", error)
                incidents.append(f"cache entry not used: {error}")
                continue
            if fetched is not None and piece.shared and not fetched.variant.lossless:
                incidents.append("cache entry not used: it has lost something at rest, and others may share its place")
                continue
            if fetched is not None:
                return Brought(chosen, fetched, tuple(incidents))
        return Brought(None, None, tuple(incidents))

    def _place(self, idle: bool) -> None:
        started = perf_counter()
        while True:
            reading = [future for linking in self._linkings.values() for _, future in linking.reading.values()]
            if not reading:
                return
            if idle:
                wait(reading, IDLE_WAIT_S, FIRST_COMPLETED)
            if not self._place_ready(started, idle) or not idle:
                return

    def _place_ready(self, started: float, idle: bool) -> bool:
        """Whether there was anything."""
        any_ready = False
        for request, linking in self._linkings.items():
            for index, (piece, future) in list(linking.reading.items()):
                if not future.done():
                    continue
                if not idle and any_ready and perf_counter() - started > PLACE_S:
                    self._write(request, linking)
                    return True
                any_ready = True
                del linking.reading[index]
                self._place_piece(request, linking, piece, future.result())
            self._write(request, linking)
        return any_ready

    def _place_piece(self, request: str, linking: Linking, piece: Piece, brought: Brought) -> None:
        started = perf_counter()
        fetched = brought.fetched
        if fetched is None:
            self._answers.loaded.append(Loaded(request, piece.index, None, incidents=brought.incidents))
            return
        variant = fetched.variant
        linking.placed[piece.index] = span = self.spans.place(variant.k, variant.v, piece.start, linking.room)
        linking.fresh.append(span)
        linking.variants[piece.index] = Placed(variant.key, variant.ids, variant.lossless)
        told = (fetched.tier, fetched.nbytes, variant.lossless, brought.incidents)
        self._answers.loaded.append(Loaded(request, piece.index, brought.chosen, *told))
        self._spent(request, "place", started)

    def _write(self, request: str, linking: Linking) -> None:
        if not linking.fresh:
            return
        started = perf_counter()
        self.spans.write(linking.room, linking.fresh, linking.blocks, linking.skip)
        linking.fresh.clear()
        self._spent(request, "place", started)

    # -- compute ----------------------------------------------------------------------------------------------------

    def _probe(self, probe: Probe) -> None:
        started = perf_counter()
        keys = self._placed_keys(self._linkings[probe.request], probe)
        attention = self.spans.question_attention(probe, keys)
        self._answers.probed.append(Probed(probe.request, attention))
        self._spent(probe.request, "probe", started)

    def _placed_keys(self, linking: Linking, probe: Probe) -> torch.Tensor:
        """[layers, kv_heads, positions, head_dim] of the layers that the probe reads."""
        keys = linking.room[0, probe.layers.start : probe.layers.stop, :, : probe.rows.positions[-1] + 1]
        known = np.zeros(keys.shape[2], dtype=bool)
        known[list(probe.rows.positions)] = True
        for span in linking.placed.values():
            known[span] = True
        keys[:, :, torch.from_numpy(~known)] = 0  # what vLLM's prefix cache alone holds: nobody asks about it
        return keys

    def _compute(self, slices: Sequence[Compute], beside: int) -> None:
        rows = [one.rows for one in slices]
        if sum(one.tokens for one in slices) <= beside:
            self.spans.join(rows, partial(self._computed, slices))
            return
        started = perf_counter()
        self.spans.compute(rows)
        self._computed(slices, perf_counter() - started)

    def _computed(self, slices: Sequence[Compute], seconds: float) -> None:
        self._answers.timed += [Timed(one.request, "repair", seconds) for one in slices]

    def _capture(self, capture: Capture) -> None:
        started = perf_counter()
        linking = self._linkings[capture.request]
        before = [linking.room[0, :, :, linking.placed[index]] for index in sorted(linking.placed)]
        if (reason := _misnamed(capture, linking)) is not None:
            self._answers.told.append(Told(capture.request, f"not captured: {reason}"))
            return
        k, v, profile = self.spans.capture(capture.rows, before)
        lossless = all(placed.lossless for placed in linking.variants.values())
        variant = Variant(capture.key, capture.rows.ids, k, v, profile, lossless)
        if not capture.desk:
            self._keep(capture.request, variant)
        elif capture.desk in self.desks:
            self.desks[capture.desk].captured = variant
        self._spent(capture.request, "capture", started)

    def _keep(self, request: str, variant: Variant) -> None:
        try:
            self.store.put(variant)
        except StoreError as error:
            logger.warning("KV not stored: %s", error)
            self._answers.told.append(Told(request, f"KV not stored: {error}"))

    def _spent(self, request: str, stage: str, started: float) -> None:
        self._answers.timed.append(Timed(request, stage, perf_counter() - started))


def _misnamed(capture: Capture, linking: Linking) -> str | None:
    """Why what was placed and will be computed is not what the key says; None when it is."""
    before = [linking.variants[index] for index in sorted(linking.variants)]
    rows, end = capture.rows, sum(len(placed.ids) for placed in before)
    if sorted(linking.variants) != list(range(len(before))) or rows.positions != tuple(range(end, end + len(rows.ids))):
        return "it does not stand right behind what was placed"
    segment = Chunk(rows.ids) if before else System(rows.ids)
    try:
        found = address_of(capture.key.fingerprint, [(placed.key, placed.ids) for placed in before], segment)
    except PromptError as error:
        return str(error)
    return None if found == capture.key else "its key does not name what was placed before it"
