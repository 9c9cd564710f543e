"""The pieces of a prompt on their way into the torch engine's buffer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack, contextmanager
from time import perf_counter

from ragcache.engine import LinkSource
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.forward import TorchForward
from ragcache.link_job import LinkJob
from ragcache.link_phase import Front
from ragcache.linking.base import Positions
from ragcache.loader import SYSTEM, Delivery, PieceLoaded
from ragcache.loader.sequential import SequentialLoader
from ragcache.policy import Rates, Work, first_pass
from ragcache.report import Report
from ragcache.store.findings import BUCKET
from ragcache.timeline import COMPUTE, LOAD, PLACE
from ragcache.types import Span

LOOK_S = 0.005  # while nothing comes: whether it would be sooner computed


class PiecesLoading:
    """Places what the loader brings of a prompt, and computes what it leaves meanwhile."""

    def __init__(self, engine: TorchForward, job: LinkJob, buffer: KVBuffer, source: LinkSource):
        self._engine, self._job, self._buffer, self._source = engine, job, buffer, source
        self._rates = source.rates or Rates()
        linker, plan = job.linkage.linker, job.linkage.plan
        linking = self._rates.seconds(first_pass(plan, linker, self._rates))
        loader = source.loader or SequentialLoader()
        self._loading = loader.begin(job.pieces, source.store, self._rates, linking)
        self.placing = 0.0  # seconds of placing alone
        self._early = 0.0  # of them before the link
        self._waited = 0.0  # amid the link, for layers

    def place(self) -> None:
        """All pieces; `upper_layers` of them may lag. Nothing more comes where it fails."""
        with ExitStack() as failing:
            failing.callback(self._loading.stop)
            self._place()
            failing.pop_all()
        self._early = self.placing

    def _place(self) -> None:
        job, loading = self._job, self._loading
        while not loading.ended:
            if (delivery := loading.take()) is None:
                if not self._front_computed():
                    wait(loading.awaited, LOOK_S, FIRST_COMPLETED)
                continue
            self._placed(delivery)
            if delivery.loaded is not None:
                self._learn(delivery.loaded)
                job.loaded(self._with_system(delivery.loaded))
        while (piece := job.awaited) is not None:  # none, unless a loader loses one
            job.loaded(self._with_system(PieceLoaded(piece.index, None)))

    def _front_computed(self) -> bool:
        """Compute the first piece that has not come, or a part of it, or leave it to the repair, where the loader is
        sooner done without that; says whether.
        """
        job, rates = self._job, self._rates
        piece, final = job.awaited, job.final
        if piece is None:
            return False

        def affords(rows: Positions, until: int) -> bool:
            return self._loading.affords(piece, rates.seconds(_work(rows)), until)

        front = job.front(piece, affords, final=final)
        if not self._loading.claim(piece, rates.seconds(_work(front.rows)), final=final, until=front.part):
            return False
        if not final:
            job.lacks(piece)
            return True
        if len(front.rows):
            self._compute(front)
        job.computed(front)
        return True

    def _compute(self, front: Front) -> None:
        started, ids, rows = perf_counter(), self._job.linkage.plan.ids, front.rows
        self._engine.compute([ids[row] for row in rows], rows.tolist(), self._buffer)
        self._engine.synchronize()
        self._rates.observe(_work(rows), (ended := perf_counter()) - started)
        self._job.note(COMPUTE, front.piece.index, started, ended, Span(int(rows[0]), int(rows[-1]) + 1))

    @contextmanager
    def upper_layers(self) -> Iterator[None]:
        """Within, each layer has come before it is computed, and nothing comes behind it. Raises PieceLost."""
        self._buffer.lacks = self._layer if self._loading.lags else None
        try:
            yield
        finally:
            self._buffer.lacks = None
            self._loading.stop()

    def _layer(self, layer: int) -> None:
        if not self._loading.lags:
            self._buffer.lacks = None
            return
        started, placing = perf_counter(), self.placing
        for delivery in self._loading.layer(layer):
            self._placed(delivery)
            if (told := delivery.loaded) is not None:
                self._learn(told)
                if told.read is not None:
                    self._job.note(LOAD, told.index, *told.read)
        self._waited += perf_counter() - started - (self.placing - placing)

    def _placed(self, delivery: Delivery) -> None:
        started = perf_counter()
        for block in delivery.blocks:
            self._engine.place_block(self._buffer, self._job.fitting(delivery.piece, block))
        self.placing += (ended := perf_counter()) - started
        if delivery.blocks:
            self._job.note(PLACE, delivery.piece.index, started, ended)

    def _learn(self, loaded: PieceLoaded) -> None:
        if tier := self._job.planned_tier(loaded):
            came_far = loaded.tier == BUCKET  # also what had left the disk by then
            loaded.teach(self._rates, BUCKET if came_far else tier)

    def _with_system(self, loaded: PieceLoaded) -> PieceLoaded:
        """A System segment that did not come is computed at once and stored, for all prompts to come."""
        if loaded.index != SYSTEM or loaded.chosen is not None:
            return loaded
        linkage, reported = self._job.linkage, self._job.report.incidents
        system, key = linkage.plan.system, linkage.system
        assert system is not None
        assert key is not None
        is_told = any(key.digest in told for told in reported)  # by the plan
        incidents = [] if is_told else list(loaded.incidents)
        found = self._source.system(system, incidents, is_told or bool(incidents))
        self._engine.place(self._buffer, found.variant, 0)
        return PieceLoaded(SYSTEM, 0, found.tier, found.nbytes, found.variant.lossless, incidents=tuple(incidents))

    def tell(self, report: Report) -> None:
        """What of the seconds of each stage went where."""
        report.seconds["load"] += self._waited - self._early
        report.seconds["link"] -= self._waited + (self.placing - self._early)
        report.seconds["place"] = self.placing


def _work(rows: Positions) -> Work:
    """Nothing where there are none."""
    return Work.at(rows) + Work(passes=1) if len(rows) else Work()
