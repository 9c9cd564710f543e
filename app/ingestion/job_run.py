"""One job of the queue: a file that was sent becomes a document."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.errors import CatalogError, CollectionBusy, IngestStopped, NotFound, printable
from app.ingestion import IngestOptions, IngestProgress, IngestResult
from app.ingestion.ingest import Ingest
from app.ingestion.lanes import LANES, Lanes
from app.ingestion.leased_run import LeasedRun
from app.ingestion.readers import ReadBefore, Readers
from app.ingestion.room import KvTurn
from app.ingestion.spool import Spool
from app.ingestion.stages import FileStages
from app.ingestion.survey import Pending
from app.ingestion.worker import Outcome
from app.job_states import GAVE_WAY
from app.library import Library
from app.library.catalog.records import Collection, Document, FileState
from app.library.catalog.serving_records import StoredJob
from app.library.originals import SCHEME, Originals, is_kept, sources_of
from app.models import Models

_TOLD = ("chunks", "tokens", "kv_variants", "kv_bytes")
_CAME = ("document", "outcome", "notes")  # told as soon as the document can be asked about
log = logging.getLogger(__name__)


class JobRun(LeasedRun):
    def __init__(
        self, library: Library, models: Models, spool: Spool, originals: Originals, lanes: Lanes, job: StoredJob
    ):
        super().__init__(library, lanes, job)
        self._models, self._spool, self._originals = models, spool, originals
        self._ingest: Ingest | None = None
        self._ends: Ingest | Readers | None = None  # what is to stop where this is
        self._outdated = False  # a newer file of the name is in
        self._stages = FileStages()
        self._reached = IngestProgress(0, 1, 0, int(job.request["size"]), 0)
        self._gave_way = bool(job.progress.get(GAVE_WAY))
        before = job.progress if "document" in job.progress else {}  # which came in an earlier turn
        self._before = {name: int(before.get(name) or 0) for name in _TOLD}
        self._came = {name: before[name] for name in _CAME if name in before}

    def stop(self) -> None:
        with self._lock:
            super().stop()
            ends = self._ends
        if ends is not None:
            ends.stop()

    def _work(self) -> IngestResult:
        path = self._spool.path(self.job.request["file"])
        if not path.exists():
            raise NotFound(f"the file of {self._name} is no longer there: send it again")
        outcome: Outcome | None = None
        while True:
            collection = self._collection()
            try:
                if outcome is None:
                    outcome = self._read(collection, path)
                with self._computing():
                    return self._ingested(collection, path, outcome)
            except CollectionBusy:
                self._wait()

    def _read(self, collection: Collection, path: Path) -> Outcome | None:
        """Beside other jobs, which may work on the collection; None of a file that is outdated. Raises IngestStopped,
        and CollectionBusy where what was read would have to wait for others than these.
        """
        if not self._lanes.share(self.job):
            with self._library.catalog.alone_as(collection):
                pass
        if self._is_outdated(collection):
            return None
        (source, found), state = self._found(collection), None
        if found is not None:
            state = FileState(
                found.id, found.content_hash, found.size, found.mtime_ns, found.state, found.attempts, None
            )
        file = Pending(source, int(self.job.request["size"]), state, str(path))
        with Readers(1, share=self._share) as readers:
            self._begin(readers)
            ((_, outcome),) = readers.read([file], retry=True)
        if self._stopping.is_set():
            raise IngestStopped("the job was stopped while its file was read")
        self._stages.reached("read", 1, 1)
        return outcome

    def _ingested(self, collection: Collection, path: Path, outcome: Outcome | None) -> IngestResult:
        options = IngestOptions(workers=1, retry_failed=True)
        turn = KvTurn(self._is_over, self._puts_off, goes_on=self._gave_way)
        readers = ReadBefore(outcome, self._share) if outcome is not None else Readers(1, share=self._share)
        ingest = Ingest(
            self._library, self._models, collection, options, self._progress, None, self._stages, turn, readers
        )
        self._ingest = ingest
        self._begin(ingest)
        source, before = self._found(collection)
        result = ingest.run_named({path: source}, self._is_outdated)
        if self._outdated:
            return result
        if not result.failed:
            self._keep(path)
        if before is not None and before.content_hash != self.job.request["sha256"] and is_kept(self._name):
            self._originals.drop([before.content_hash])
        return result

    @property
    def _share(self) -> int:
        """Of the memory that there is for reading: all of it where there are no keys, and so no other owners."""
        return LANES if self.job.owner else 1

    def _begin(self, ends: Ingest | Readers) -> None:
        with self._lock:
            self._ends = ends
            if self._stopping.is_set():
                ends.stop()

    def _is_outdated(self, collection: Collection) -> bool:
        """Whether what came later under its name is in, though perhaps that job has not written its end yet. Turns are
        by keys, and files may have waited on another machine.
        """
        _, document = self._found(collection)
        held = document.content_hash if document is not None and document.state == "ready" else None
        is_own = held == self.job.request["sha256"]
        if self._came and not is_own:
            self._outdated = True  # or it was deleted
        elif held is None or (is_own and self._gave_way):  # whose KV goes on, whoever has sent the same since
            self._outdated = False
        else:
            self._outdated = any(
                one.state == "done" or (_may_be_in(one) and one.request["sha256"] == held)
                for one in self._jobs.newer(self.job)
            )
        return self._outdated

    def _is_over(self) -> bool:
        return self._where_told(lambda: self._turn_is_over(besides={self.job.owner}))

    def _puts_off(self) -> bool:
        """The KV that is still to be computed. The catalog knows that before the document is in, or whoever does the
        job behind a kill would take it for done.
        """
        self._gave_way = True
        return self._where_told(self._tell)

    def _where_told(self, asked: Callable[[], bool]) -> bool:
        """Not where the catalog does not answer: then it goes on."""
        try:
            return asked()
        except CatalogError as error:
            log.warning("job %s gives way to no others: %s", self.job.id, error)
            return False

    def _keep(self, path: Path) -> None:
        if is_kept(self._name):
            self._originals.keep(path, self.job.request["sha256"])

    def _finished(self, result: IngestResult | None) -> IngestResult | None:
        assert result is not None
        if result.failed:
            failure = result.failed[0]
            final = {"final": True} if failure.lasting else {}
            told = f"{printable(Path(self._name))} {failure.reason}"
            if self._jobs.fail(self.job, told, {**self._counts(), **final}) and final:
                self._spool.drop(self.job.request["file"])
            return None
        _, document = self._found(self._collection())
        noted = self._notes(result, document)
        notes = {"notes": noted} if noted else {}
        self._came = {"document": document.id if document else None, "outcome": self._outcome(result), **notes}
        if self._ingest is not None and self._ingest.put_off:
            self._let_go()
            return None
        numbers = self._numbers(result)
        if not self._jobs.finish(self.job, numbers | {"files": 1, **self._came}):
            return None
        self._spool.drop(self.job.request["file"])
        return replace(result, **{name: numbers[name] for name in _TOLD})

    def _outcome(self, result: IngestResult) -> str:
        if self._outdated:
            return "superseded"
        came = str(self._came.get("outcome", "unchanged"))
        return "added" if result.added else "replaced" if result.replaced else came

    def _notes(self, result: IngestResult, document: Document | None) -> list[str]:
        """Of all turns."""
        if self._outdated:
            told = "a newer upload of this name is in" if document else "its document was deleted meanwhile"
            return [f"{printable(Path(self._name))}: {told}"]
        return list(dict.fromkeys([*self._came.get("notes", ()), *(one.removeprefix(SCHEME) for one in result.notes)]))

    @property
    def _name(self) -> str:
        return str(self.job.request["name"])

    def _found(self, collection: Collection) -> tuple[str, Document | None]:
        """What its document is called or will be, and that document."""
        sources = sources_of(self._name)
        documents = ((one, self._library.catalog.documents.find(collection, one)) for one in sources)
        return next((one for one in documents if one[1] is not None), (sources[0], None))

    def _progress(self, reached: IngestProgress) -> None:
        self._reached = reached

    def _counts(self) -> Mapping[str, Any]:
        ingest, gave_way = self._ingest, {GAVE_WAY: True} if self._gave_way else {}
        if ingest is None and not self._stages.as_json():
            return {}
        return self._numbers(ingest.result if ingest else None) | self._came | gave_way

    def _numbers(self, result: IngestResult | None) -> dict[str, Any]:
        size = self.job.request["size"]
        reached = {"files": self._reached.files, "of_files": 1, "nbytes": self._reached.nbytes, "of_nbytes": size}
        summed = {name: count + (getattr(result, name) if result else 0) for name, count in self._before.items()}
        return reached | summed | self._stages.as_json()


def _may_be_in(job: StoredJob) -> bool:
    """Whether its document may be, though the job has not ended well."""
    return job.state in ("running", "failed") or (job.state == "queued" and job.started is not None)
