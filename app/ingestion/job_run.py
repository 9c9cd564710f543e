"""One job of the queue: a file that was sent becomes a document, under a lease that is renewed beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from app.errors import CatalogError, CollectionBusy, IngestStopped, NotFound, printable
from app.ingestion import IngestOptions, IngestProgress, IngestResult
from app.ingestion.ingest import Ingest
from app.ingestion.spool import Spool
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.library.originals import SCHEME, Originals, is_kept
from app.models import Models
from ragcache.errors import FAULTS, RagcacheError

LEASE_S = 120.0  # a write of a large document may hold the catalog for some of them
LOOK_S = 1.0  # how often it looks whether it is to stop, and tells how far it is
BUSY_S = 1.0  # before it asks again for a collection that others work on
BUG = "the server met a bug with this file: its log tells which"
_TOLD = ("chunks", "tokens", "kv_variants", "kv_bytes")
log = logging.getLogger(__name__)


class JobRun:
    """`run` once, on a thread that may compute; the rest from any thread."""

    def __init__(self, library: Library, models: Models, spool: Spool, originals: Originals, job: StoredJob):
        self._library, self._models, self._spool, self._originals = library, models, spool, originals
        self.job = job
        self._jobs = library.catalog.jobs
        self._lock = threading.Lock()
        self._ingest: Ingest | None = None
        self._stopping, self._ended, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._cancelled = self._lost = False
        self._reached = IngestProgress(0, 1, 0, int(job.request["size"]), 0)
        self._told: Mapping[str, Any] = {}

    def stop(self) -> None:
        """It ends soon, and the job is for whoever comes next."""
        with self._lock:
            self._stopping.set()
            ingest = self._ingest
        if ingest is not None:
            ingest.stop()

    def look(self) -> None:
        """Now rather than in a second: somebody may have cancelled the job."""
        self._wake.set()

    def run(self) -> IngestResult | None:
        """What came of it is in the catalog when this returns -> what was done, where all of it was."""
        beside = threading.Thread(target=self._watch, name=f"job-{self.job.id[:8]}", daemon=True)
        beside.start()
        try:
            return self._run()
        finally:
            self._ended.set()
            self._wake.set()
            beside.join()

    def _run(self) -> IngestResult | None:
        try:
            result = self._ingested()
        except IngestStopped:
            self._let_go()
        except RagcacheError as error:
            if not self._lost:
                log.warning("job %s: %s", self.job.id, error)
                self._jobs.fail(self.job, str(error))
        except FAULTS as error:
            log.error("job %s", self.job.id, exc_info=error)
            self._jobs.fail(self.job, BUG)
        else:
            return self._finished(result)
        return None

    def _let_go(self) -> None:
        if self._lost:
            return
        if self._cancelled:
            self._jobs.stop(self.job)
        else:
            self._jobs.release(self.job)

    # -- the ingest -------------------------------------------------------------------------------------------------

    def _ingested(self) -> IngestResult:
        path = self._spool.path(self.job.request["file"])
        if not path.exists():
            raise NotFound(f"the file of {self._name} is no longer there: send it again")
        while True:
            collection = self._collection()
            options = IngestOptions(workers=1, retry_failed=True)
            with self._lock:
                self._ingest = ingest = Ingest(self._library, self._models, collection, options, self._progress)
                if self._stopping.is_set():
                    ingest.stop()
            before = self._library.catalog.documents.find(collection, self._source)
            try:
                result = ingest.run_named({path: self._source})
            except (CollectionBusy, NotFound) as error:
                if isinstance(error, NotFound) and self._collection().name == collection.name:
                    raise  # it was not another name of the collection that was missed
                if self._stopping.wait(BUSY_S):
                    raise IngestStopped("the job was stopped before its ingest began") from None
                continue
            if not result.failed:
                self._keep(path)
            if before is not None and before.content_hash != self.job.request["sha256"] and is_kept(self._name):
                self._originals.drop([before.content_hash])
            return result

    def _collection(self) -> Collection:
        for one in self._library.catalog.collections.all():
            if one.id == self.job.collection_id:
                return one
        raise NotFound("the collection is deleted")

    def _keep(self, path: Path) -> None:
        if is_kept(self._name):
            self._originals.keep(path, self.job.request["sha256"])

    def _finished(self, result: IngestResult) -> IngestResult | None:
        if result.failed:
            self._jobs.fail(self.job, f"{printable(Path(self._name))} {result.failed[0].reason}")
            return None
        document = self._library.catalog.documents.find(self._collection(), self._source)
        outcome = "added" if result.added else "replaced" if result.replaced else "unchanged"
        notes = {"notes": list(result.notes)} if result.notes else {}
        done = {"document": document.id if document else None, "outcome": outcome, **notes}
        if not self._jobs.finish(self.job, self._counts(result) | {"files": 1, **done}):
            return None
        self._spool.drop(self.job.request["file"])
        return result

    @property
    def _name(self) -> str:
        return str(self.job.request["name"])

    @property
    def _source(self) -> str:
        return SCHEME + self._name

    # -- beside it --------------------------------------------------------------------------------------------------

    def _progress(self, reached: IngestProgress) -> None:
        self._reached = reached

    def _counts(self, result: IngestResult) -> dict[str, Any]:
        size = self.job.request["size"]
        reached = {"files": self._reached.files, "of_files": 1, "nbytes": self._reached.nbytes, "of_nbytes": size}
        return reached | {name: getattr(result, name) for name in _TOLD}

    def _watch(self) -> None:
        """Renews the lease, tells how far it is, and stops it where that is wanted."""
        renewed = monotonic()
        while True:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            if self._ended.is_set():
                return
            try:
                if monotonic() - renewed > LEASE_S / 6:
                    self._jobs.renew(self.job, LEASE_S)
                    renewed = monotonic()
                self._tell()
                self._obey(self._jobs.get(self.job.id, None))
            except NotFound:  # with its collection
                self._lose()
            except CatalogError as error:
                log.warning("job %s: %s", self.job.id, error)

    def _tell(self) -> None:
        ingest = self._ingest
        if ingest is not None and (counts := self._counts(ingest.result)) != self._told:
            self._jobs.progress(self.job, counts)
            self._told = counts

    def _obey(self, now: StoredJob) -> None:
        if now.state != "running" or now.lease != self.job.lease:
            self._lose()
        elif now.cancelling:
            self._cancelled = True
            self.stop()

    def _lose(self) -> None:
        """Others have it, or nobody wants it any more."""
        if not self._ended.is_set():
            self._lost = True
            self.stop()
