"""One job of the queue: the KV that a collection lacks is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.errors import CollectionBusy, IngestStopped
from app.ingestion import IngestResult
from app.ingestion.lanes import Lanes
from app.ingestion.leased_run import LeasedRun
from app.library import Library
from app.library.catalog.serving_records import StoredJob
from app.models import Models

if TYPE_CHECKING:
    from app.cachecare.warming import WarmingProgress


_MADE = ("tokens", "kv_variants", "kv_bytes")


class WarmRun(LeasedRun):
    """It stops behind a document, and goes on there; also where its turn is over and others wait."""

    def __init__(self, library: Library, models: Models, lanes: Lanes, job: StoredJob):
        super().__init__(library, lanes, job)
        self._models = models
        self._reached: WarmingProgress | None = None
        self._of_chunks = 0
        self._before = {name: int(job.progress.get(name) or 0) for name in _MADE}  # in earlier turns

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
            for reached in warm(self._library, self._models, collection, self.job.request["border"]):
                self._reached = reached
                if self._stopping.is_set():
                    raise IngestStopped("the job was stopped behind a document")
                # First it goes over what others, or it, have done.
                self.is_behind = reached.computed > 0 and self._turn_is_over()
                if self.is_behind:
                    raise IngestStopped("others wait")
        except CollectionBusy:
            return False
        return True

    def _finished(self, result: IngestResult | None) -> None:
        self._jobs.finish(self.job, self._counts())

    def _counts(self) -> Mapping[str, Any]:
        reached = self._reached
        if reached is None:
            return {}
        done = {"documents": reached.documents, "chunks": reached.chunks, "of_chunks": self._of_chunks}
        made = zip(_MADE, (reached.tokens, reached.computed, reached.nbytes), strict=True)
        summed = {name: self._before[name] + count for name, count in made}
        return done | summed | {"failed": len(reached.failed)}
