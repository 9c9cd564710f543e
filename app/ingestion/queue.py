"""Files that clients send, in a process those of one owner one after the other; and KV that is to be computed between.

The jobs are rows of the catalog, so all processes over it share them, and those of one that was killed go on in the
next. Each is run by one process at a time, beside one of another owner (`lanes`); it may be run again, and then finds
what is in already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic

from app.document_names import composed
from app.errors import Conflict, IngestError, IngestStopped, can_be_shown
from app.ingestion import IngestResult
from app.ingestion.coming import ComingFiles
from app.ingestion.housekeeping import Housekeeper
from app.ingestion.job_run import JobRun
from app.ingestion.lanes import LANES, Lanes
from app.ingestion.leased_run import LEASE_S, LeasedRun
from app.ingestion.spool import Incoming, Spool
from app.ingestion.warm_run import WarmRun
from app.job_states import WAITING
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits, StoredJob
from app.library.catalog.tables import now
from app.library.folder_claim import claim
from app.library.indexes import forget_all
from app.library.kv_following import KvFollowing
from app.library.originals import Originals
from app.loaders import format_of, unknown
from app.loaders.base import sendable_bytes
from app.loaders.encodings import REPLACED
from app.models import Models
from app.models.cores import release_helpers
from ragcache.errors import FAULTS, RagcacheError

LONGEST_NAME = 255  # bytes, as of a file
KEPT = timedelta(days=7)  # jobs that have ended, and the files of those that can be tried again
MOST_WAITING, MOST_OF_ONE = 1000, 250  # jobs of all, and of one key, so that there is room for others
POLL_S = 2.0  # for jobs that other processes have made or left
CLOSING_S = 60.0
PAUSE_S = 30.0  # behind a fault of the machine, such as a full disk: the next jobs would meet it too
ALONE_S = 5.0  # a collection that others work on is left, where other jobs wait
log = logging.getLogger(__name__)


class QueueFull(RagcacheError):
    """So many files wait that no more are taken."""

    status = 429


class IngestQueue:
    """`start` before anything else. Threads share it; some of its own ingest. `behind` is told what was ingested."""

    def __init__(self, library: Library, models: Models, behind: Callable[[IngestResult], None] = lambda result: None):
        self._library, self._models, self._behind = library, models, behind
        self._jobs = library.catalog.jobs
        self.spool = Spool(library.settings.data_dir)
        self.originals = Originals(library)
        self._coming = ComingFiles(self._jobs)
        self._changed = threading.Condition()
        self._closing = False
        self._lanes, self._runs = Lanes(), list[LeasedRun]()
        forgets = (KvFollowing(library, models).follow, lambda stopped: forget_all(library, stopped))
        self._house = Housekeeper(self._lanes, self.sweep, forgets)
        self._claims = threading.Lock()  # of whoever looks for a job
        self._faulty: int | None = None  # the collection with which the last job met a fault of the machine
        self._busy: dict[int, float] = {}  # collections that others work on, until when they are left alone
        self._paused = 0.0  # until when all are
        self._threads = [
            threading.Thread(target=self._serve, args=(lane,), name=f"ingest-queue-{lane}", daemon=True)
            for lane in range(LANES)
        ]

    def start(self) -> None:
        """Raises CatalogError where the data folder is another catalog's."""
        claim(self._library.settings)
        self.spool.open()
        self._house.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """What is being ingested is stopped, and goes on in the next process."""
        with self._changed:
            self._closing, runs = True, list(self._runs)
            self._changed.notify_all()
        self._house.stop()
        for run in runs:
            run.stop()
        threads = (*self._threads, self._house.thread)
        started, until = [one for one in threads if one.ident is not None], monotonic() + CLOSING_S
        for thread in started:
            thread.join(max(0.0, until - monotonic()))
        if started:
            self.spool.close()

    # -- for clients ------------------------------------------------------------------------------------------------

    @contextmanager
    def incoming(self, name: str, owner: str = "", limits: KeyLimits | None = None) -> Iterator[Incoming]:
        """A file of this name that comes: write it inside the block, and `add` it there, or it is gone. `limits` of the
        owner bound it while it comes.

        Raises IngestError for what is no name, LoadError where no loader reads such files, and QueueFull.
        """
        name = composed(name)
        check_name(name)
        if format_of(Path(name)) is None:
            raise unknown(Path(name))
        self._check_room(owner, self.spool.place)
        most = sendable_bytes(self._library.settings.serve_upload_bytes)
        with (
            self._coming.one(owner, limits) as check,
            self.spool.incoming(Path(name).suffix.lower(), most, check) as file,
        ):
            yield file

    def add(
        self, collection: Collection, name: str, file: Incoming, owner: str, limits: KeyLimits | None = None
    ) -> StoredJob:
        """The file is on the disk, and the job in the catalog, when this returns. Raises LimitReached."""
        file.finish()
        request = {"name": composed(name), "file": file.name, "sha256": file.sha256, "size": file.size}
        request |= {"place": self.spool.place}
        job = self._jobs.create(collection, request, owner, limits=limits)
        self.spool.known(file)
        self._notify()
        return job

    def warm(self, collection: Collection, border: str, owner: str) -> StoredJob:
        """The KV that it lacks is to be computed, within that border. Raises Conflict where that is to be done here
        already, by whomever, and QueueFull. Another machine computes it for itself.
        """
        wanted = (border, self.spool.place)
        jobs = self._jobs.all(owner=None, collection=collection, kind="warm")
        if any((one.request["border"], one.request.get("place")) == wanted for one in jobs if one.state in WAITING):
            raise Conflict(f"the KV that {collection.name!r} lacks is being computed, or will be")
        self._check_room(owner, self.spool.place)
        job = self._jobs.create(collection, {"border": border, "place": self.spool.place}, owner, "warm")
        self._notify()
        return job

    def _check_room(self, owner: str, place: str) -> None:
        """Nobody there works off what waits elsewhere."""
        if self._jobs.queued(None, place) >= MOST_WAITING:
            raise QueueFull(f"{MOST_WAITING} jobs wait: send this one later")
        if owner and self._jobs.queued(owner, place) >= MOST_OF_ONE:
            raise QueueFull(f"{MOST_OF_ONE} jobs of this key wait: send this one later")

    def cancel(self, job_id: str, owner: str | None) -> StoredJob:
        job = self._jobs.cancel(job_id, owner)
        with self._changed:
            runs = [run for run in self._runs if run.job.id == job_id]
        for run in runs:
            run.look()
        return job

    def retry(self, job_id: str, owner: str | None) -> StoredJob:
        before = self._jobs.get(job_id, owner)
        self._check_room(before.owner, str(before.request.get("place", "")))
        job = self._jobs.retry(job_id, owner)
        self._notify()
        return job

    def sweep(self) -> None:
        """What ended long ago, and what killed processes have left, goes; their jobs go on."""
        self._jobs.give_up_elsewhere(now() - KEPT, self.spool.place)
        self._jobs.forget(now() - KEPT)
        self.spool.sweep(self._jobs.abandon, self._files)
        self.originals.sweep()
        self._library.sweep_indexes()

    def _files(self) -> set[str]:
        """Of jobs that run or can be tried again."""
        jobs = self._jobs.all(owner=None)
        wanted = (job for job in jobs if job.state != "done" and not job.progress.get("final"))
        return {str(job.request["file"]) for job in wanted if job.kind == "ingest"}

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- the worker -------------------------------------------------------------------------------------------------

    def _serve(self, lane: int) -> None:
        while not self._closing:
            try:
                with self._claims:
                    run = self._claimed()
                if run is not None:
                    self._work(run)
                    continue
            except FAULTS as error:  # of the catalog: the job is claimed again when its lease has run out
                log.error("the queue of ingests: %s", error, exc_info=not isinstance(error, RagcacheError))
            with self._changed:
                if not self._closing:  # where nothing is done, one looks for all
                    self._changed.wait(POLL_S if self._runs or not lane else None)

    def _claimed(self) -> LeasedRun | None:
        """A job of somebody none of whose jobs is done now: theirs come one after the other."""
        with self._changed:
            self._busy = {one: until for one, until in self._busy.items() if until > monotonic()}
            busy = frozenset(self._busy)
            if self._closing or self._paused > monotonic() or self._lanes.is_risky:
                return None
        job = self._jobs.claim(self.spool.process, LEASE_S, self.spool.place, busy, self._lanes.owners())
        if job is None:
            return None
        run = self._run_of(job)
        self._lanes.begin(job)
        with self._changed:
            self._runs.append(run)
            self._changed.notify_all()
            if self._closing:
                run.stop()
        return run

    def _work(self, run: LeasedRun) -> None:
        try:
            result = run.run()
            if result is not None:
                with suppress(IngestStopped), self._lanes.computing(lambda: self._closing):
                    self._behind(result)
        finally:
            with self._changed:
                self._runs.remove(run)
                if run.gave_way:
                    self._busy[run.job.collection_id] = monotonic() + ALONE_S
                if run.met_fault:
                    self._pause(run.job.collection_id)
                else:
                    self._faulty = None
            self._lanes.end(run.job)
            release_helpers()

    def _pause(self, collection_id: int) -> None:
        """Of the jobs of a collection with which something is wrong; of all where the one before met a fault too."""
        until = monotonic() + PAUSE_S
        if self._faulty in (None, collection_id):
            self._busy[collection_id] = until
        else:
            self._paused = until
        self._faulty = collection_id

    def _run_of(self, job: StoredJob) -> LeasedRun:
        if job.kind == "warm":
            return WarmRun(self._library, self._models, self._lanes, job)
        return JobRun(self._library, self._models, self.spool, self.originals, self._lanes, job)


def check_name(name: str) -> None:
    """Whether it can name a document: a name, not a path. Raises IngestError."""
    told = None
    if not name or name in (".", "..") or name != name.strip():
        told = "it is empty, or begins or ends with blanks"
    elif not can_be_shown(name):
        told = "it holds characters that cannot be shown"
    elif REPLACED in name:
        told = "it holds a sign that stands for bytes which are no UTF-8"
    elif "/" in name or "\\" in name:
        told = "a name holds no slashes"
    elif len(name.encode()) > LONGEST_NAME:
        told = f"it is longer than {LONGEST_NAME} bytes"
    if told is not None:
        raise IngestError(f"{name[:LONGEST_NAME]!r} cannot name a document: {told}")
