"""The worker's side: fetches, places, probes and computes what the scheduler's side ordered."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from functools import partial
from time import perf_counter

import torch

from ragcache.engine.vllm.captures import Storing, captured
from ragcache.engine.vllm.late_layers import LateLayers, late, place
from ragcache.engine.vllm.loaders import file_loader
from ragcache.engine.vllm.orders import (
    Answers,
    Capture,
    Compute,
    Failed,
    Load,
    Loaded,
    Looked,
    Orders,
    Probe,
    Probed,
    Timed,
)
from ragcache.engine.vllm.own_time import OwnTime
from ragcache.engine.vllm.placement import Exchange, Linking, ReadAhead, rooms_ahead
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.engine.vllm.step_clock import step_clock
from ragcache.errors import FAULTS, reason_of
from ragcache.loader import Delivery, Loader, Loading, PieceLoaded
from ragcache.loader.reading import nothing, unused
from ragcache.rates import Rates, Work
from ragcache.store.base import KVStore

logger = logging.getLogger(__name__)
IDLE_WAIT_S = 0.005  # how long a step without other work waits for a file, instead of spinning
PLACE_S = 0.004  # of a step with other work: so long it places what has been read; the rest waits for the next


class LinkWorker:
    """One per rank. Everything but the reading runs in the worker's one thread, between vLLM's forwards."""

    def __init__(self, spans: SpanRunner, store: KVStore, loader: Loader | None = None):
        """`store`: brings those K/V heads of the model that this rank holds."""
        self.store = store
        self.spans, self.own, self.clock = spans, OwnTime(), step_clock(spans.device)
        self.exchanges: dict[str, Exchange] = {}
        self._linkings: dict[str, Linking] = {}
        self._fetched, self._storing = ReadAhead(), Storing()
        self.loader, self._rates = loader or file_loader(), Rates()
        self._idle = self._placed = False  # in this step: nobody else runs; what had been read was placed
        self._answers = Answers()
        self._spoilt: set[int] = set()  # blocks that hold no right KV after all

    def obey(self, orders: Orders, beside: int = 0) -> None:
        """`beside`: so many rows may join the forward that vLLM runs next."""
        for request in orders.release:
            self._release(request)
        self._fetched.obey(orders, partial(self.loader.ahead, store=self.store, rates=self._rates), self._linking)
        for load in orders.load:
            with self._linking(load.request):
                self._start(load)
        for drop in orders.drop:
            if drop.request in self._linkings:
                self._linkings[drop.request].drop(drop.piece, drop.until)
        self._idle = orders.idle
        self._placed = self._place(orders.idle and not (orders.probe or orders.compute or orders.capture))
        for probe in orders.probe:
            with self._linking(probe.request, together=True):
                self._probe(probe)
        for capture in orders.capture:
            with self._linking(capture.request):
                self._capture(capture)
        if orders.compute:
            self._compute(orders.compute, beside)
        for request in orders.linked:
            self._settle(request)
        for request in orders.finish:
            self._forget(request)
        if orders.idle and not orders and not self._loadings:
            self.own.idle(partial(wait, self._storing.awaited, IDLE_WAIT_S, FIRST_COMPLETED))

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
        return bool(self._storing.awaited or self._loadings)

    @property
    def _loadings(self) -> list[Loading]:
        begun = (linking.loading for linking in self._linkings.values())
        return [loading for loading in begun if loading is not None and not loading.ended]

    def take_answers(self) -> Answers | None:
        """At the end of a step."""
        loading = [request for request, one in self._linkings.items() if one.loading and not one.loading.ended]
        if loading:  # what came while it computed
            self._place_ready(perf_counter(), self._idle)
        self._answers.measured += self.clock.take()
        self._answers.looked += [Looked(request, perf_counter()) for request in loading]
        self._storing.tell(self._answers)
        self._placed = False
        answers, self._answers = self._answers, Answers()
        return answers or None

    def take_spoilt(self) -> set[int]:
        spoilt, self._spoilt = self._spoilt, set()
        return spoilt

    def close(self) -> None:
        self.loader.close()
        self._storing.close()

    # -- load -------------------------------------------------------------------------------------------------------

    def _start(self, load: Load) -> None:
        linking = self._linkings[load.request] = Linking(load.blocks, load.skip, torch.empty(0))
        if not load.exchange:
            begin = partial(self.loader.begin, load.pieces, self.store, self._rates, load.linking)
            linking.loading = self._fetched.take(load) or begin()
        linking.room = self.spans.room(load.room)  # where there is none, what was begun ends with the linking
        for piece in load.pieces if load.exchange else ():
            exchange = self.exchanges.get(load.exchange)  # none where whoever asked has left
            self._take_in(load.request, linking, nothing(piece) if exchange is None else exchange.delivery(piece))
        self._write(load.request, linking)

    def _place(self, idle: bool) -> bool:
        """Whether it took time."""
        started, took = perf_counter(), False
        while True:
            loadings = self._loadings
            awaited = [future for loading in loadings for future in loading.awaited]
            if idle and awaited:
                self.own.idle(partial(wait, awaited, IDLE_WAIT_S, FIRST_COMPLETED))
            any_ready = bool(loadings) and self._place_ready(started, idle)
            took = took or any_ready or (idle and bool(awaited))
            if not any_ready or not idle:
                return took

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
        if piece.index in linking.dropped:
            return
        try:
            place(self.spans, linking, (block.behind(linking.front(piece)) for block in delivery.blocks))
        except FAULTS as error:
            linking.broken[piece.index] = unused(error)
        if loaded is not None and (told := linking.broken.get(piece.index)):
            loaded = PieceLoaded(piece.index, None, incidents=(*loaded.incidents, told))
        if loaded is not None:
            self._answers.loaded.append(Loaded(request, loaded))
            loaded.teach(self._rates)
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

    def stepped(self, work: Work) -> None:
        """What a step did that ends; untold where it waited for files or placed what they held."""
        if not self._placed:
            self.clock.end(work)

    # -- compute ----------------------------------------------------------------------------------------------------

    def _probe(self, probe: Probe) -> None:
        started = perf_counter()
        keys = self._ready_keys(probe)
        if not self.spans.agreed(keys is not None) or keys is None:
            return  # the rank that is not ready has said why
        linking = self._linkings[probe.request]
        if missing := linking.missing(probe.question):
            self.spans.blank(missing, linking.blocks, range(probe.layers.stop))
        amid = LateLayers(self.spans, late(self._linkings, [probe.request]))
        attention = self.spans.question_attention(probe, keys, amid.bring if amid else None)
        self._tell(amid)
        seconds = self.own.without(started) - amid.seconds
        if probe.request in amid.lost:
            self._fail(probe.request, amid.lost[probe.request])
            return
        self._answers.probed.append(Probed(probe.request, attention))
        self._answers.timed.append(Timed(probe.request, "probe", seconds))

    def _ready_keys(self, probe: Probe) -> torch.Tensor | None:
        try:
            return self._linkings[probe.request].keys(probe)
        except FAULTS as error:
            self._fail(probe.request, error)
            return None

    def _compute(self, slices: Sequence[Compute], beside: int) -> None:
        rows = [one.rows for one in slices]
        try:
            rooms = rooms_ahead(slices, self._linkings)
            if sum(one.tokens for one in slices) <= beside and not any(one.lags for one in slices):
                self.spans.join(rows, rooms, partial(self._computed, slices), partial(self._spoil, slices))
                return
            amid = LateLayers(self.spans, late(self._linkings, [one.request for one in slices]))
            started = perf_counter()
            self.spans.compute(rows, rooms, amid.bring if amid else None)
            amid.end()
            self._computed(slices, self.own.without(started) - amid.seconds)
            self._tell(amid)
            for one in slices:
                if one.request in amid.lost:
                    self._spoil([one], amid.lost[one.request])
        except FAULTS as error:
            if self.spans.ranks > 1:
                raise  # the others wait in the middle of this pass
            if len(slices) == 1 and not beside:
                self._spoil(slices, error)
                return
            for one in slices:  # all but one may be sound; a slice that is computed twice is the same
                self._compute([one], 0)

    def _settle(self, request: str) -> None:
        """All of it is there before vLLM goes on."""
        amid = LateLayers(self.spans, late(self._linkings, [request]))
        self.own.idle(partial(amid.bring, len(self.spans.layers) - 1))
        self._tell(amid)
        if request in amid.lost:
            linking = self._linkings[request]
            self._spoilt.update(linking.blocks[linking.skip // self.spans.block_size :])
            self._fail(request, amid.lost[request])

    def _tell(self, amid: LateLayers) -> None:
        self._placed = self._placed or bool(amid)
        self._answers.read += amid.read
        for loaded in amid.read:
            loaded.teach(self._rates)

    def _spoil(self, slices: Sequence[Compute], error: Exception) -> None:
        """vLLM computes all from the first position that is not right: it may be about to show it to the question."""
        for one in slices:
            self._spoilt.update(one.rows.blocks[one.valid // self.spans.block_size :])
            self._fail(one.request, error)

    def _computed(self, slices: Sequence[Compute], seconds: float) -> None:
        self._answers.timed += [Timed(one.request, "ahead" if one.ahead else "repair", seconds) for one in slices]

    def _capture(self, capture: Capture) -> None:
        started = perf_counter()
        linking = self._linkings[capture.request]
        captured(capture, linking, self.spans, self.exchanges, self._storing, self.store)
        self._spent(capture.request, "capture", started)

    def _spent(self, request: str, stage: str, started: float) -> None:
        self._answers.timed.append(Timed(request, stage, self.own.without(started)))
