"""One job of the queue: a file that was sent becomes a document."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.errors import CatalogError, CollectionBusy, NotFound, printable
from app.ingestion import IngestOptions, IngestProgress, IngestResult
from app.ingestion.ingest import Ingest
from app.ingestion.leased_run import LeasedRun
from app.ingestion.room import KvTurn
from app.ingestion.spool import Spool
from app.ingestion.stages import FileStages
from app.job_states import GAVE_WAY
from app.library import Library
from app.library.catalog.records import Collection, Document
from app.library.catalog.serving_records import StoredJob
from app.library.originals import SCHEME, Originals, is_kept, sources_of
from app.models import Models

_TOLD = ("chunks", "tokens", "kv_variants", "kv_bytes")
_CAME = ("document", "outcome", "notes")  # told as soon as the document can be asked about
log = logging.getLogger(__name__)


class JobRun(LeasedRun):
    def __init__(self, library: Library, models: Models, spool: Spool, originals: Originals, job: StoredJob):
        super().__init__(library, job)
        self._models, self._spool, self._originals = models, spool, originals
        self._ingest: Ingest | None = None
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
            ingest = self._ingest
        if ingest is not None:
            ingest.stop()

    def _work(self) -> IngestResult:
        path = self._spool.path(self.job.request["file"])
        if not path.exists():
            raise NotFound(f"the file of {self._name} is no longer there: send it again")
        while True:
            collection = self._collection()
            options = IngestOptions(workers=1, retry_failed=True)
            with self._lock:
                self._stages = FileStages()
                turn = KvTurn(self._gives_way, goes_on=self._gave_way)
                ingest = Ingest(
                    self._library, self._models, collection, options, self._progress, stages=self._stages, turn=turn
                )
                self._ingest = ingest
                if self._stopping.is_set():
                    ingest.stop()
            source, before = self._found(collection)
            try:
                result = ingest.run_named({path: source}, self._is_outdated)
            except CollectionBusy:
                self._wait()
                continue
            if self._outdated:
                return result
            if not result.failed:
                self._keep(path)
            if before is not None and before.content_hash != self.job.request["sha256"] and is_kept(self._name):
                self._originals.drop([before.content_hash])
            return result

    def _is_outdated(self, collection: Collection) -> bool:
        """Whether what came later under its name is in, though perhaps that job has not written its end yet. Turns are
        by keys, and files may have waited on another machine.
        """
        _, document = self._found(collection)
        if self._came and (document is None or document.content_hash != self.job.request["sha256"]):
            self._outdated = True  # or it was deleted
        elif document is not None and document.state == "ready":
            held = document.content_hash
            newer = self._jobs.newer(self.job)
            self._outdated = any(
                one.state == "done" or (one.state in ("running", "failed") and one.request["sha256"] == held)
                for one in newer
            )
        return self._outdated

    def _gives_way(self) -> bool:
        """To others, with the KV that is still to be computed. The catalog knows that before the document is in, or
        whoever does the job behind a kill would take it for done.
        """
        try:
            if not self._turn_is_over(besides=self.job.owner):
                return False
            self._gave_way = True
            return self._tell()
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
        if self._ingest is None:
            return {}
        gave_way = {GAVE_WAY: True} if self._gave_way else {}
        return self._numbers(self._ingest.result) | self._came | gave_way

    def _numbers(self, result: IngestResult) -> dict[str, Any]:
        size = self.job.request["size"]
        reached = {"files": self._reached.files, "of_files": 1, "nbytes": self._reached.nbytes, "of_nbytes": size}
        summed = {name: count + getattr(result, name) for name, count in self._before.items()}
        return reached | summed | self._stages.as_json()
