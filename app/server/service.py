"""What all requests share: the pipeline over its library and models, and what runs beside the requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from app.answering import Answer
from app.answering.pipeline import RagPipeline, measure_answers
from app.answering.stream import AnswerStream
from app.cachecare.budgets import Budgets
from app.cachecare.history import CacheRecorder
from app.chat.contexts import Sweeper
from app.ingestion.queue import IngestQueue
from app.library.catalog import Catalog
from app.models.folders import BUNDLED
from app.pages import Pages
from app.server.generations import ServedAnswers
from app.server.job_watch import JobWatch
from app.server.key_watch import KeyWatch
from app.server.limits import READS, WATCHES, RequestsAtOnce
from app.server.metrics import Metrics
from app.server.process import UNLOADED
from app.server.queueing import Turns
from app.server.tracing import open_traces
from app.settings import Settings
from ragcache.errors import FAULTS, ConfigError
from ragcache.store.findings import TierStats

_log = logging.getLogger(__name__)


class Service:
    """Threads share it. `start` before the first request, `close` behind the last."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.pipeline = RagPipeline(settings)
        self.turns = Turns(settings.serve_concurrent, settings.serve_queue)
        self.changes, self.uploads = RequestsAtOnce(), RequestsAtOnce()
        self.reads, self.watches = RequestsAtOnce(READS), RequestsAtOnce(WATCHES)
        self.metrics = Metrics(self.pipeline, self.turns, self.tiers)
        self.traces = open_traces()
        self.pipeline.watchers.append(self.watch)
        self.model = model_name(settings.model)
        self.embedder = model_name(settings.embedder)
        self.origins = frozenset(one.strip() for one in settings.serve_origins.split(",") if one.strip())
        self.contexts = self.pipeline.contexts
        self._sweeper = Sweeper(self.contexts)
        library, models = self.pipeline.library, self.pipeline.models
        self.ingests = IngestQueue(library, models, partial(measure_answers, library, models))
        self.key_watch = KeyWatch(self.catalog.keys.lapsed)
        self.job_watch = JobWatch(self.catalog)
        self.generations = ServedAnswers(self.key_watch)
        self.budgets = Budgets(models)
        self.history = CacheRecorder(self.catalog, models)
        self.pipeline.watchers.append(self.history.watch)
        self.pages = Pages(library)
        # A daemon: whoever asks twice that the process ends does not wait for it.
        self._loading = threading.Thread(target=self._load, name="ragcache-load", daemon=True)
        self._loaded, self._came = threading.Event(), Future[None]()
        self._failure: str | None = None

    @property
    def catalog(self) -> Catalog:
        return self.pipeline.library.catalog

    def bytes_of(self, token: int) -> bytes:
        return self.pipeline.answering.template.vocabulary.bytes_of(token)

    def start(self) -> None:
        """Loads the models on a thread of their own; requests that come meanwhile wait for them."""
        self.ingests.start()
        self.history.start()
        self._loading.start()

    def _load(self) -> None:
        try:
            self.pipeline.load()
            assert self.pipeline.chat
        except FAULTS as error:
            self._failure = str(error)
            _log.error("%s%s", UNLOADED, error)
        else:
            self._loaded.set()
            self._sweeper.start()
        finally:
            self._came.set_result(None)

    async def come(self) -> None:
        """When the models are loaded, or cannot be. Who needs them waits here, and not on a thread that others need."""
        await asyncio.shield(asyncio.wrap_future(self._came))

    def watch(self, stream: AnswerStream) -> None:
        """An answer that starts is counted, traced, and written to the log as far as the settings want it. Those of the
        pipeline are watched already.
        """
        self.metrics.watch(stream)
        if self.traces is not None:
            stream.then.append(self.traces.answer())
        if self.settings.log_texts:
            stream.then.append(_log_texts)

    def watched(self, start: Callable[[], AnswerStream]) -> AnswerStream:
        """Of one that no pipeline starts."""
        stream = start()
        self.watch(stream)
        return stream

    def tiers(self) -> Sequence[TierStats]:
        """Of the store, once there is one."""
        return self.pipeline.models.store.stats() if self.keeps_kv else ()

    @property
    def keeps_kv(self) -> bool:
        """In a store, which is open by now."""
        return self._loaded.is_set() and self.settings.kv != "off"

    def lacks(self) -> list[str]:
        """Why it is not ready to serve; nothing where it is."""
        lacking = [] if self._loaded.is_set() else [self._failure or "the models are being loaded"]
        checks: tuple[Callable[[], object], ...] = (self.catalog.collections.all, self.tiers)
        for check in checks:
            try:
                check()
            except FAULTS as error:
                lacking.append(str(error))
        return lacking

    def close(self) -> None:
        """Behind the models' loading, if that has begun: what it opens after this would be closed by nobody, and a
        process that ends amid it is aborted.
        """
        try:
            if self._loading.is_alive():
                _log.info("the models are still being loaded: it ends behind that")
                self._loading.join()
            self.ingests.close()
            self._sweeper.close()
            self.generations.close()
            self.key_watch.close()
            self.job_watch.close()
            self.history.close()
        finally:
            try:
                self.pipeline.close()
            finally:
                if self.traces is not None:
                    self.traces.close()


async def service_of(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


Serving = Annotated[Service, Depends(service_of)]


def _log_texts(answer: Answer) -> Answer:
    _log.info("%r was answered by %r", answer.question, answer.text)
    return answer


def model_name(model: str) -> str:
    """As clients name it in requests, where what stands behind an @ is a collection. Raises ConfigError."""
    name = told_model(model)
    if "@" in name or not name:
        raise ConfigError(f"a model named {model!r} cannot be served: rename its folder, to one without @")
    return name


def told_model(model: str) -> str:
    """Without where it lies: "smollm2" for bundled:smollm2, the id of one of a hub, the name of a folder."""
    name = model.removeprefix(BUNDLED) if model.startswith(BUNDLED) else model
    return Path(name).name if Path(name).is_absolute() or name.startswith((".", "~")) else name
