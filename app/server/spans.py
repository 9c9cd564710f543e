"""Spans of an answer, made from its report: whoever answers measures the stages anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time_ns

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.answering import Answer
from ragcache.report import Report

# In the order in which they happen; those of a report that are not among them come behind.
STAGES = ("condense", "retrieve", "rerank", "parked", "plan", "load", "place", "link")
SECOND = 1_000_000_000


class Traces:
    """Sends them in the background, to where OTEL_EXPORTER_OTLP_ENDPOINT says, by OTLP over HTTP. They hold no text."""

    def __init__(self) -> None:
        named = Resource({"service.name": "ragcache"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=named)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("ragcache")

    @contextmanager
    def within(self, parent: str) -> Iterator[None]:
        """What is answered in it, also by threads that it starts, belongs to a client's span."""
        token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": parent} if parent else {}))
        try:
            yield
        finally:
            context.detach(token)

    def answer(self) -> Callable[[Answer], Answer]:
        """What is told of an answer at its end."""
        parent = context.get_current()

        def end(answer: Answer) -> Answer:
            self._tell(answer.report, parent)
            return answer

        return end

    def close(self) -> None:
        """When all have been sent, or cannot be."""
        self._provider.shutdown()

    def _tell(self, report: Report, parent: context.Context) -> None:
        end = time_ns()
        decoding = end - int(report.decode_s * SECOND)
        start = decoding - int(report.ttft_s * SECOND)
        root = self._tracer.start_span("answer", parent, attributes=_attributes(report), start_time=start)
        inside, moment = trace.set_span_in_context(root, parent), start
        for name in sorted(report.seconds, key=lambda name: STAGES.index(name) if name in STAGES else len(STAGES)):
            begun, moment = moment, moment + int(report.seconds[name] * SECOND)
            self._tracer.start_span(name, inside, start_time=begun).end(moment)
        self._tracer.start_span("decode", inside, start_time=decoding).end(end)
        root.end(end)


def _attributes(report: Report) -> dict[str, str | int | float]:
    names = ("prompt_tokens", "reused", "repaired", "computed", "answer_tokens", "ttft_s")
    return {"ragcache.linker": report.linker} | {f"ragcache.{name}": getattr(report, name) for name in names}
