"""One job of the queue: the KV that a collection lacks is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xxhash

from app.errors import CollectionBusy, IngestStopped, NotFound
from app.ingestion import IngestResult
from app.ingestion.lanes import Lanes
from app.ingestion.leased_run import LeasedRun
from app.job_states import LAST, MODEL
from app.library import Library
from app.library.catalog.serving_records import StoredJob
from app.library.identities import current_identity
from app.models import Models

if TYPE_CHECKING:
    from app.cachecare.warming import WarmingProgress


_DONE = ("documents", "chunks", "tokens", "kv_variants", "kv_bytes", "failed")


class WarmRun(LeasedRun):
    """It stops behind a chunk, and goes on with its document; also where its turn is over and others wait."""

    def __init__(self, library: Library, models: Models, lanes: Lanes, job: StoredJob):
        super().__init__(library, lanes, job)
        self._models = models
        self._reached: WarmingProgress | None = None
        self._of_chunks = 0
        self._model = ""
        self._told_before = job.progress
        self._before = {name: int(job.progress.get(name) or 0) for name in (*_DONE, LAST)}  # in earlier turns

    def _work(self) -> None:
        while True:
            with self._computing():
                if self._warmed():
                    return
            self._wait()

    def _warmed(self) -> bool:
        """Whether nobody else worked on the collection."""
        from app.cachecare.warming import warm  # it imports torch

        collection = self._collection()
        self._of_chunks = self._library.catalog.collections.totals(collection).chunks
        try:
            border, last = self.job.request["border"], self._last()
            for reached in warm(self._library, self._models, collection, border, last, self._check):
                self._reached = reached
                self._check()
        except CollectionBusy:
            return False
        return True

    def _last(self) -> int:
        """What it goes on behind: nothing where that is gone, or another model or System segment is there now."""
        identity, last = current_identity(self._models), self._before[LAST]
        self._model = xxhash.xxh3_64_hexdigest(f"{identity.fingerprint} {identity.system}".encode())
        if self._told_before.get(MODEL) != self._model or not self._is_there(last):
            self._before = dict.fromkeys(self._before, 0)
        return self._before[LAST]

    def _is_there(self, document: int) -> bool:
        try:
            return self._library.catalog.documents.get(document).state == "ready"
        except NotFound:
            return False

    def _check(self) -> None:
        if self._stopping.is_set():
            raise IngestStopped("the job was stopped behind a chunk")
        self.is_behind = self._turn_is_over()
        if self.is_behind:
            raise IngestStopped("others wait")

    def _finished(self, result: IngestResult | None) -> None:
        self._jobs.finish(self.job, self._counts())

    def _counts(self) -> Mapping[str, Any]:
        reached = self._reached
        if reached is None:  # in this turn
            return self._told_before
        now = (reached.documents, reached.chunks, reached.tokens, reached.computed, reached.nbytes, len(reached.failed))
        summed = {name: self._before[name] + count for name, count in zip(_DONE, now, strict=True)}
        return summed | {"of_chunks": self._of_chunks, LAST: reached.last, MODEL: self._model}
