"""The worker's side: fetches, places, probes and computes what the scheduler's side ordered."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from functools import partial
from time import perf_counter

import numpy as np
import torch

from ragcache.address import lineage_of
from ragcache.engine.vllm.cores import leave_cores
from ragcache.engine.vllm.orders import (
    Answers,
    Capture,
    Compute,
    Failed,
    Incident,
    Load,
    Loaded,
    Measured,
    Orders,
    Probe,
    Probed,
    Timed,
)
from ragcache.engine.vllm.placement import Exchange, Linking, misnamed
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import FAULTS, StoreError, reason_of
from ragcache.loader import Block, Delivery, Loader, Loading, PieceLoaded, SegmentPiece
from ragcache.loader.reading import nothing, unused
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import READERS, Clock, DiskThreads
from ragcache.policy import Work
from ragcache.store.base import KVStore
from ragcache.types import Variant

logger = logging.getLogger(__name__)
HANDED = "handed"  # the tier of what came from the engine's own process
IDLE_WAIT_S = 0.005  # how long a step without other work waits for a file, instead of spinning
PLACE_S = 0.004  # of a step with other work: so long it places what has been read; the rest waits for the next


def file_loader(limit_s: float = 5.0, clock: Clock = perf_counter) -> Loader:
    """`limit_s`: of reading a piece."""
    return SequentialLoader(DiskThreads(READERS, "ragcache-read", limit_s, clock, leave_cores))


class LinkWorker:
    """One per rank. Everything but the reading runs in the worker's one thread, between vLLM's forwards."""

    def __init__(self, spans: SpanRunner, store: KVStore, loader: Loader | None = None):
        """`store`: brings those K/V heads of the model that this rank holds."""
        self.store = store
        self.spans = spans
        self.exchanges: dict[str, Exchange] = {}
        self._linkings: dict[str, Linking] = {}
        self._loader = loader or file_loader()
        self._answers = Answers()
        self._spoilt: set[int] = set()  # blocks that hold no right KV after all

    def obey(self, orders: Orders, beside: int = 0) -> None:
        """`beside`: so many rows may join the forward that vLLM runs next."""
        for request in orders.release:
            self._release(request)
        for load in orders.load:
            with self._linking(load.request):
                self._start(load)
        self._place(orders.idle and not (orders.probe or orders.compute or orders.capture))
        for probe in orders.probe:
            with self._linking(probe.request, together=True):
                self._probe(probe)
        for capture in orders.capture:
            with self._linking(capture.request):
                self._capture(capture)
        if orders.compute:
            self._compute(orders.compute, beside)
        for request in orders.finish:
            self._forget(request)

    @contextmanager
    def _linking(self, request: str, *, together: bool = False) -> Iterator[None]:
        """What breaks is this request's alone: it is not linked. In the middle of a pass that several ranks compute
        together it is everybody's, since the others wait for this one.
        """
        try:
            yield
        except FAULTS as error:
            if together and self.spans.ranks > 1:
                raise
            self._fail(request, error)

    def _fail(self, request: str, error: Exception) -> None:
        logger.warning("request %s is not linked", request, exc_info=error)
        self._forget(request)
        self._answers.failed.append(Failed(request, reason_of(error)))

    def _forget(self, request: str) -> None:
        self._release(request)
        self._linkings.pop(request, None)

    def _release(self, request: str) -> None:
        if (linking := self._linkings.get(request)) is not None:
            linking.clear()

    @property
    def busy(self) -> bool:
        """Whether something is still to come."""
        return any(True for _ in self._loadings())

    def _loadings(self) -> Iterator[Loading]:
        for linking in self._linkings.values():
            if linking.loading is not None and not linking.loading.ended:
                yield linking.loading

    def take_answers(self) -> Answers | None:
        answers, self._answers = self._answers, Answers()
        return answers or None

    def take_spoilt(self) -> set[int]:
        spoilt, self._spoilt = self._spoilt, set()
        return spoilt

    def close(self) -> None:
        self._loader.close()

    # -- load -------------------------------------------------------------------------------------------------------

    def _start(self, load: Load) -> None:
        linking = self._linkings[load.request] = Linking(load.blocks, load.skip, self.spans.room(load.room))
        if not load.exchange:
            linking.loading = self._loader.begin(load.pieces, self.store)
            return
        for piece in load.pieces:
            self._take_in(load.request, linking, self._handed(load.exchange, piece))
        self._write(load.request, linking)

    def _handed(self, exchange: str, piece: SegmentPiece) -> Delivery:
        if exchange not in self.exchanges:  # whoever asked has left
            return nothing(piece)
        handed = self.exchanges[exchange].before[piece.index]
        loaded = PieceLoaded(piece.index, 0, HANDED, handed.nbytes, handed.lossless)
        return Delivery(piece, (Block.whole(handed, piece.start),), loaded, handed.origin)

    def _place(self, idle: bool) -> None:
        started = perf_counter()
        while True:
            loadings = list(self._loadings())
            if not loadings:
                return
            awaited = [future for loading in loadings for future in loading.awaited]
            if idle and awaited:
                wait(awaited, IDLE_WAIT_S, FIRST_COMPLETED)
            if not self._place_ready(started, idle) or not idle:
                return

    def _place_ready(self, started: float, idle: bool) -> bool:
        """Whether there was anything."""
        any_ready, limit = False, None if idle else started + PLACE_S
        for request, linking in list(self._linkings.items()):
            with self._linking(request):
                while linking.loading is not None and not (any_ready and limit and perf_counter() > limit):
                    if (delivery := linking.loading.take()) is None:
                        break
                    any_ready = True
                    self._take_in(request, linking, delivery)
                self._write(request, linking)
        return any_ready

    def _take_in(self, request: str, linking: Linking, delivery: Delivery) -> None:
        started, piece, loaded = perf_counter(), delivery.piece, delivery.loaded
        try:
            for block in delivery.blocks:
                self.spans.place(block, linking.room)
        except FAULTS as error:
            linking.broken[piece.index] = unused(error)
        if loaded is not None and (told := linking.broken.get(piece.index)):
            loaded = PieceLoaded(piece.index, None, incidents=(*loaded.incidents, told))
        if loaded is not None:
            self._answers.loaded.append(Loaded(request, loaded))
        if loaded is not None and loaded.chosen is not None:
            assert delivery.origin is not None, "a loader tells what it brought"  # else the request is not linked
            linking.has(piece, delivery.origin)
        if delivery.blocks:
            self._spent(request, "place", started)

    def _write(self, request: str, linking: Linking) -> None:
        if not linking.fresh:
            return
        started = perf_counter()
        self.spans.write(linking.room, linking.fresh, linking.blocks, linking.skip)
        linking.fresh.clear()
        self._spent(request, "place", started)

    def measured(self, work: Work, seconds: float) -> None:
        """What a step took. While files are read it may have waited for them."""
        if not self.busy:
            self._answers.measured.append(Measured(work, seconds))

    # -- compute ----------------------------------------------------------------------------------------------------

    def _probe(self, probe: Probe) -> None:
        started = perf_counter()
        keys = self._ready_keys(probe)
        if not self.spans.agreed(keys is not None) or keys is None:
            return  # the rank that is not ready has said why
        linking = self._linkings[probe.request]
        if missing := linking.missing(probe.question):
            self.spans.blank(missing, linking.blocks, range(probe.layers.stop))
        attention = self.spans.question_attention(probe, keys)
        self._answers.probed.append(Probed(probe.request, attention))
        self._spent(probe.request, "probe", started)

    def _ready_keys(self, probe: Probe) -> torch.Tensor | None:
        try:
            return self._placed_keys(self._linkings[probe.request], probe)
        except FAULTS as error:
            self._fail(probe.request, error)
            return None

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
        try:
            if sum(one.tokens for one in slices) <= beside:
                self.spans.join(rows, partial(self._computed, slices), partial(self._spoil, slices))
                return
            started = perf_counter()
            self.spans.compute(rows)
            self._computed(slices, perf_counter() - started)
        except FAULTS as error:
            if self.spans.ranks > 1:
                raise  # the others wait in the middle of this pass
            if len(slices) == 1 and not beside:
                self._spoil(slices, error)
                return
            for one in slices:  # all but one may be sound; a slice that is computed twice is the same
                self._compute([one], 0)

    def _spoil(self, slices: Sequence[Compute], error: Exception) -> None:
        """vLLM computes all from the first position that is not right: it may be about to show it to the question."""
        for one in slices:
            self._spoilt.update(one.rows.blocks[one.valid // self.spans.block_size :])
            self._fail(one.request, error)

    def _computed(self, slices: Sequence[Compute], seconds: float) -> None:
        self._answers.timed += [Timed(one.request, "repair", seconds) for one in slices]

    def _capture(self, capture: Capture) -> None:
        started = perf_counter()
        linking = self._linkings[capture.request]
        if (reason := misnamed(capture, linking)) is not None:
            self._answers.incidents.append(Incident(capture.request, f"not captured: {reason}"))
            return
        if linking.recorder is None:
            lengths = [span.stop - span.start for _, span in sorted(linking.placed.items())]
            assert sum(lengths) == capture.start, (lengths, capture.start)
            linking.recorder = self.spans.recorder(linking.room, lengths, len(capture.segment))
        self.spans.capture(capture.rows, linking.recorder)
        if capture.last:
            k, v, profile = linking.recorder.result()
            lineage = lineage_of(len(capture.segment), linking.behind)
            self._hand_over(capture, Variant(capture.key, capture.segment.ids, k, v, profile, lineage))
        self._spent(capture.request, "capture", started)

    def _hand_over(self, capture: Capture, variant: Variant) -> None:
        if not capture.exchange:
            self._keep(capture.request, variant)
        elif capture.exchange in self.exchanges:
            self.exchanges[capture.exchange].captured = variant

    def _keep(self, request: str, variant: Variant) -> None:
        try:
            self.store.put(variant)
        except StoreError as error:
            logger.warning("KV not stored: %s", error)
            self._answers.incidents.append(Incident(request, f"KV not stored: {error}"))

    def _spent(self, request: str, stage: str, started: float) -> None:
        self._answers.timed.append(Timed(request, stage, perf_counter() - started))
