"""A job of the queue under its lease, which is renewed beside it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Any

from app.errors import CatalogError, IngestStopped, NotFound, OtherEmbedder
from app.ingestion import IngestResult
from app.ingestion.lanes import Lanes
from app.library import Library
from app.library.catalog.jobs import ATTEMPTS
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from ragcache.errors import FAULTS, RagcacheError

LEASE_S = 120.0  # a write of a large document may hold the catalog for some of them
LOOK_S = 1.0  # how often it looks whether it is to stop, and tells how far it is
TURN_S = 60.0  # KV may take hours, and whoever sends a file meanwhile waits no longer than that and a chunk or document
BUSY_S = 1.0  # before it asks again for a collection that others work on
OF_MACHINE = 500  # and more: of errors, their status
BUG = "the server met a bug in this job: its log tells which"
log = logging.getLogger(__name__)


class LeasedRun(ABC):
    """`run` once, on a thread that may compute; the rest from any thread.

    What it does raises IngestStopped where it was told to stop, and other errors for what the job has failed by.
    """

    def __init__(self, library: Library, lanes: Lanes, job: StoredJob):
        self._library, self._lanes = library, lanes
        self.job = job
        self._jobs = library.catalog.jobs
        self._lock = threading.Lock()
        self._stopping, self._ended, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._cancelled = self._lost = False
        self.place = str(job.request.get("place", ""))
        self.is_behind = False  # those that wait, when it is let go
        self.gave_way = False  # to jobs of other collections, since others work on this one's
        self.met_fault = False  # of the machine, and none of the job
        self._told: Mapping[str, Any] = {}
        self._telling = threading.Lock()
        self._asks: float | None = None  # when it looks next for others that wait

    @abstractmethod
    def _work(self) -> IngestResult | None:
        """All that may fail -> what was ingested, if anything is."""

    @abstractmethod
    def _finished(self, result: IngestResult | None) -> IngestResult | None:
        """Tells the catalog what came of it."""

    @abstractmethod
    def _counts(self) -> Mapping[str, Any]:
        """How far it is; none where that cannot be told yet."""

    def stop(self) -> None:
        """It ends soon, and the job is for whoever comes next."""
        self._stopping.set()

    def look(self) -> None:
        """Now rather than in a second: somebody may have cancelled the job."""
        self._wake.set()

    def run(self) -> IngestResult | None:
        """What came of it is in the catalog when this returns -> what was ingested, where all of it was."""
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
            result = self._work()
        except IngestStopped:
            self._let_go()
        except RagcacheError as error:
            self._end_by(error)
        except FAULTS as error:
            log.error("job %s", self.job.id, exc_info=error)
            self._jobs.fail(self.job, BUG)
        else:
            return self._finished(result)
        return None

    def _end_by(self, error: RagcacheError) -> None:
        """A fault of the machine may pass, and the next job would meet it too: this one waits for another try."""
        self.met_fault = error.status >= OF_MACHINE and not isinstance(error, OtherEmbedder)
        if self._lost:
            return
        log.warning("job %s: %s", self.job.id, error)
        if self._cancelled:
            self._jobs.stop(self.job)
        elif not self.met_fault or self.job.attempts >= ATTEMPTS:
            self._jobs.fail(self.job, str(error))
        else:
            self._jobs.put_back(self.job, str(error))

    def _let_go(self) -> None:
        if self._lost:
            return
        if self._cancelled:
            self._jobs.stop(self.job)
        else:
            with suppress(CatalogError):  # then the lease runs out, or less is known of this turn
                self._tell()  # the next turn counts on from there
            self._jobs.release(self.job, behind=self.is_behind)

    def _wait(self) -> None:
        """Before another try, while others work on the collection. Raises IngestStopped where it is told to stop, and
        where jobs of other collections wait for this one meanwhile.
        """
        stopping = self._stopping.wait(BUSY_S)
        if not stopping and self._jobs.waits(self.place, {self.job.collection_id}, self._lanes.owners(but=self.job)):
            self.gave_way = True
        if stopping or self.gave_way:
            raise IngestStopped("the job was stopped before it began")

    def _turn_is_over(self, besides: AbstractSet[str] = frozenset()) -> bool:
        """Whether others wait, of other owners than `besides`, and it has computed for long since this was asked
        first.
        """
        moment = monotonic()
        if self._asks is None:
            self._asks = moment + TURN_S
        if moment < self._asks:
            return False
        self._asks = moment + LOOK_S
        return self._lanes.is_wanted or self._jobs.waits(self.place, besides=besides | self._lanes.owners(but=self.job))

    def _computing(self) -> AbstractContextManager[None]:
        """A block in which no other job of this process computes. Raises IngestStopped."""
        return self._lanes.computing(self._stopping.is_set)

    def _collection(self) -> Collection:
        if (found := self._library.catalog.collections.with_id(self.job.collection_id)) is None:
            raise NotFound("the collection is deleted")
        return found

    # -- beside it --------------------------------------------------------------------------------------------------

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
            except FAULTS as error:  # without a lease another would do the job beside this one
                log.error("job %s", self.job.id, exc_info=error)

    def _tell(self) -> bool:
        """Whether the catalog has it: not where another has the job."""
        with self._telling:
            if (counts := self._counts()) and counts != self._told:
                if not self._jobs.progress(self.job, counts):
                    return False
                self._told = counts
            return True

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
