"""What Prometheus is told: requests, answers, and what they stand on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.answering import Answer
from app.answering.pipeline import RagPipeline
from app.answering.stream import AnswerStream
from app.models import Models
from app.server.queueing import Turns
from ragcache.errors import FAULTS
from ragcache.store.eviction import order_names
from ragcache.store.findings import TierStats

TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
BETWEEN_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
Tiers = Callable[[], Sequence[TierStats]]
_log = logging.getLogger(__name__)


class Metrics:
    """Threads share it. In a registry of its own, so that two servers of a process do not mix."""

    def __init__(self, pipeline: RagPipeline, turns: Turns, tiers: Tiers):
        """`tiers`: of its store, once there is one."""
        self.registry = registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("ragcache_requests", "Requests, by route.", labels, registry=registry)
        self._answers = Counter("ragcache_answers", "Answers that ended.", registry=registry)
        self._first = Histogram("ragcache_ttft_seconds", "To the first token.", buckets=TTFT_S, registry=registry)
        told = "Between two tokens."
        self._between = Histogram("ragcache_inter_token_seconds", told, buckets=BETWEEN_S, registry=registry)
        told = "Tokens of prompts (cached, repaired, computed) and of answers (answered)."
        self._tokens = Counter("ragcache_tokens", told, ("source",), registry=registry)
        ProcessCollector(registry=registry)
        registry.register(_States(pipeline, turns, tiers))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def watch(self, stream: AnswerStream) -> None:
        """Counts it, from its first token to its end."""
        stream.heard.append(self._hear())
        stream.then.append(self._end)

    def _hear(self) -> Callable[[], None]:
        last: float | None = None

        def hear() -> None:
            nonlocal last
            moment = perf_counter()
            if last is not None:
                self._between.observe(moment - last)
            last = moment

        return hear

    def _end(self, answer: Answer) -> Answer:
        report = answer.report
        self._answers.inc()
        if report.answer_tokens:
            self._first.observe(report.ttft_s)
        for source, tokens in (
            ("cached", report.reused),
            ("repaired", report.repaired),
            ("computed", report.computed),
            ("answered", report.answer_tokens),
        ):
            self._tokens.labels(source).inc(tokens)
        return answer


class _States(Collector):
    """What is looked at when it is asked for. What cannot be told then is left out."""

    def __init__(self, pipeline: RagPipeline, turns: Turns, tiers: Tiers):
        self._pipeline, self._turns, self._stats = pipeline, turns, tiers

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("ragcache_queue_length", "Requests that wait for their turn.", self._turns.waiting)
        yield GaugeMetricFamily("ragcache_running_answers", "Answers that are made.", self._turns.running)
        indexes = self._pipeline.library.index_memory.usage
        yield GaugeMetricFamily(
            "ragcache_index_collections", "Collections with indexes in memory.", indexes.collections
        )
        yield GaugeMetricFamily("ragcache_index_bytes", "Memory that these take, about.", indexes.nbytes)
        yield CounterMetricFamily("ragcache_index_left", "Indexes that were let go for others.", indexes.left)
        for read in (self._tiers, self._jobs, self._quality, self._plans):
            try:
                yield from read()
            except FAULTS as error:
                _log.warning("some metrics cannot be told: %s", error)

    def describe(self) -> Iterator[Metric]:
        """Nothing, or it would be collected when it is registered."""
        return iter(())

    def _tiers(self) -> list[Metric]:
        nbytes = GaugeMetricFamily("ragcache_tier_bytes", "KV, by tier.", labels=["tier"])
        entries = GaugeMetricFamily("ragcache_tier_entries", "Entries of KV, by tier.", labels=["tier"])
        told = "Entries that made room (evicted, displaced), or were not taken in (declined), by tier."
        gone = CounterMetricFamily("ragcache_tier_gone", told, labels=["tier", "why"])
        order = GaugeMetricFamily(
            "ragcache_tier_order", "1 for what goes first when it is full.", labels=["tier", "order"]
        )
        names = order_names(self._pipeline.settings.eviction)
        for one in self._stats():
            order.add_metric([one.tier, names[one.tier]], 1)
            nbytes.add_metric([one.tier], one.nbytes)
            entries.add_metric([one.tier], one.entries)
            for why, count in (("evicted", one.evictions), ("displaced", one.displaced), ("declined", one.declined)):
                gone.add_metric([one.tier, why], count)
        ahead = CounterMetricFamily("ragcache_anticipated", "Chunks brought into memory before anybody asked for them.")
        ahead.add_metric([], self._pipeline.ahead.lifted)
        return [nbytes, entries, order, gone, ahead, *self._refined()]

    def _refined(self) -> list[Metric]:
        cache = Models.cache.peek(self._pipeline.models)
        if cache is None or (refining := cache.refining) is None:
            return []
        told = "Chunks captured in the context of a prompt, behind its answer."
        captured = CounterMetricFamily("ragcache_refined", told, refining.captured)
        return [captured, CounterMetricFamily("ragcache_refining_seconds", "That this took.", refining.seconds)]

    def _quality(self) -> list[Metric]:
        """By the numbers of collections, whose names are for those who may read them."""
        gate = self._pipeline.gate
        kl = GaugeMetricFamily("ragcache_gate_kl", "Nats a token from answers without cache.", labels=["collection"])
        told = "How prompts are linked: 0 as asked, 1 with more repair, 2 not at all."
        level = GaugeMetricFamily("ragcache_gate_level", told, labels=["collection"])
        measured = CounterMetricFamily("ragcache_gate_measured", "Answers measured.", labels=["collection"])
        for one in gate.quality.states():
            name = [str(one.collection)]
            level.add_metric(name, one.level)
            measured.add_metric(name, one.measured)
            if one.kl is not None:
                kl.add_metric(name, one.kl)
        seconds = CounterMetricFamily("ragcache_gate_seconds", "That measuring took.", gate.quality.seconds)
        model = GaugeMetricFamily("ragcache_model_kl", "The same of the model's built-in prompts.")
        if gate.soundness is not None and gate.soundness.kl is not None:
            model.add_metric([], gate.soundness.kl)
        failed = CounterMetricFamily("ragcache_gate_failed", "Measurements that came to nothing.", gate.quality.failed)
        return [kl, level, measured, seconds, model, failed]

    def _plans(self) -> list[Metric]:
        told = "Median of how far first tokens came from when they were planned, as a share of what they took."
        error = GaugeMetricFamily("ragcache_plan_error", told)
        loaded = self._pipeline.models.loaded
        if loaded is not None and (found := loaded.plan_error) is not None:
            error.add_metric([], found)
        return [error]

    def _jobs(self) -> list[Metric]:
        jobs = GaugeMetricFamily("ragcache_jobs", "Ingests, by state.", labels=["state"])
        for state, count in self._pipeline.library.catalog.jobs.counts(None).items():
            jobs.add_metric([state], count)
        return [jobs]
