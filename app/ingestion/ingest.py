"""Files and folders into a collection."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from app.errors import CatalogError, CollectionBusy, IngestError, IngestStopped, printable
from app.ingestion import Failure, IngestOptions, IngestProgress, IngestResult, IngestTally
from app.ingestion.capture import note_kv
from app.ingestion.draft import OF_A_TEXT, uncut
from app.ingestion.outlook import Outlook, estimate_line, looked_at
from app.ingestion.readers import Readers
from app.ingestion.room import DiskCheck, KvRoom, KvTurn
from app.ingestion.stages import FileStages
from app.ingestion.survey import FolderSurvey, Pending, lost_documents, named_survey, take_survey
from app.ingestion.worker import Outcome, ReadFile, Same, Unread
from app.ingestion.writer import Writer
from app.library import Library
from app.library.catalog.records import Collection, FileState, RunState
from app.library.indexes import add_left_sentences, finish_sentences
from app.library.learning import learn_if_due
from app.models import Models

Report = Callable[[IngestProgress], None]
Tell = Callable[[str], None]
Unless = Callable[[Collection], bool]


class Ingest:
    """One run. `result` says at any time what it has done so far, also after it was stopped by an exception."""

    def __init__(
        self,
        library: Library,
        models: Models,
        collection: Collection | None,
        options: IngestOptions | None = None,
        progress: Report | None = None,
        tell: Tell | None = None,
        stages: FileStages | None = None,
        turn: KvTurn | None = None,
        readers: Readers | None = None,
    ):
        """A dry run can do without a collection. `tell` is given what the user should know at once, and `stages`
        how far it is, of one file alone, which `turn` is of too. `readers` end with it.
        """
        self._library, self._models = library, models
        self._collection = collection
        self._options = options or IngestOptions()
        self._progress = progress or (lambda _: None)
        self._tells, self._tell = tell is not None, tell or (lambda _: None)
        self._stages = stages
        mode = self._options.kv or library.settings.kv
        self._room = KvRoom(models, mode, looking=self._options.dry_run, turn=turn)
        self._tally = IngestTally()
        self._started = perf_counter()
        self._reached = IngestProgress(0, 0, 0, 0, 0)  # when the file was begun that is being written
        self._stopping = threading.Event()
        self._readers = readers
        if collection is None and not self._options.dry_run:
            raise IngestError("documents need a collection to go into: only a dry run can do without")

    @property
    def result(self) -> IngestResult:
        name = self._collection.name if self._collection else ""
        return self._tally.result(name, self._options.dry_run, perf_counter() - self._started)

    @property
    def put_off(self) -> bool:
        """Whether its turn was over before all KV was computed: what is in can be asked about."""
        return self._room.put_off

    def run(self, paths: Iterable[Path]) -> IngestResult:
        """Files that cannot be read are in the result; whatever else fails is raised, and what was done stays done.

        Raises IngestError, CatalogError, StoreError, RetrieverError and the errors of models that cannot be loaded.
        """
        self._started, named = perf_counter(), [Path(path) for path in paths]
        if self._options.dry_run:
            self._rehearse(named)
        else:
            assert self._collection is not None
            alone = self._library.catalog.alone_with(self._collection.name, self._waiting)
            with self._alone(alone) as collection, self._recorded(collection):
                self._ingest(collection, named)
        return self.result

    def run_named(self, files: Mapping[Path, str], unless: Unless = lambda collection: False) -> IngestResult:
        """The same, of files that are documents by these names, into this collection whatever it is called by now; and
        nothing at all where `unless` says so, which is asked while nobody else changes the collection.
        """
        assert self._collection is not None and not self._options.dry_run and not self._options.prune
        self._started = perf_counter()
        alone = self._library.catalog.alone_as(self._collection, self._waiting)
        with self._alone(alone) as collection:
            if not unless(collection):
                with self._recorded(collection):
                    self._ingest(collection, (), files)
        return self.result

    def stop(self) -> None:
        """From any thread: it ends at the next safe point, and raises IngestStopped."""
        self._stopping.set()
        if readers := self._readers:
            readers.stop()

    def _check_stopped(self) -> None:
        if self._stopping.is_set():
            raise IngestStopped("the ingest was stopped: what is in stays, and the next one goes on there")

    # -- around it --------------------------------------------------------------------------------------------------

    @property
    def _waiting(self) -> Tell | None:
        return self._tell if self._options.wait else None

    @contextmanager
    def _alone(self, alone: AbstractContextManager[Collection]) -> Iterator[Collection]:
        """The collection under its lock, as it is then."""
        with ExitStack() as stack:
            try:
                self._collection = stack.enter_context(alone)
            except CollectionBusy as error:
                raise CollectionBusy(f"{error}, or wait for it with --wait") from error
            self._library.check_embedder(self._collection)
            stack.enter_context(self._library.index_memory.keeping(self._collection.uid))
            yield self._collection

    @contextmanager
    def _recorded(self, collection: Collection) -> Iterator[None]:
        """In the list of runs, with how it ended. That a full disk cannot take even this must not hide the reason."""
        runs = self._library.catalog.runs
        run = runs.start(collection)
        state: RunState = "failed"
        try:
            yield
            state = "done"
        except (KeyboardInterrupt, IngestStopped):
            state = "interrupted"
            raise
        finally:
            self._room.close()
            with suppress(CatalogError):
                runs.finish(run, state, self._tally.counts())

    # -- the ingest -------------------------------------------------------------------------------------------------

    def _ingest(self, collection: Collection, paths: Sequence[Path], files: Mapping[Path, str] | None = None) -> None:
        collection = self._cut_as_asked(collection)
        finish_sentences(self._library, self._models, collection, self._check_stopped)
        states = self._library.catalog.documents.states(collection)
        survey = self._survey(paths, states) if files is None else named_survey(files, states)
        kv_bytes = self._models.disk_bytes if self._room.mode == "eager" else 0
        disks = DiskCheck(self._library.settings, kv_bytes, collection)
        self._gone(paths, states, survey)  # which may refuse, before anything is changed
        if survey.pending and (warning := disks.warning(survey.pending)):
            self._tell(f"warning: {warning}")
        self._room.keep_for(disks.growth(survey.pending))
        room, advance, stages, check = self._room, self._within, self._stages, self._check_stopped
        writer = Writer(self._library, self._models, collection, self._tally, room, disks, advance, stages, check)
        outlook = Outlook(self._library, self._models, collection, self._room) if self._tells else None
        for file, outcome in self._read(survey, outlook):
            match outcome:
                case ReadFile():
                    disks.check(outcome.parsed.text)
                    writer.add(file, outcome)
                case Same():
                    writer.touch(file, outcome.stamp)
                case Unread(stamp=stamp) if stamp is not None and not file.keeps_older(to_blame=True):
                    writer.fail(file, stamp, outcome.reason)
            if not isinstance(outcome, ReadFile):
                self._room.came(file)
        writer.flush()
        self._tally.gone = self._gone(paths, states, survey)
        self._tally.pruned = writer.prune(list(self._tally.gone.values()))
        writer.finish()
        if add_left_sentences(self._library, self._models, collection, self._check_stopped):
            learn_if_due(self._library, self._models, collection, wrote=self._tally.chunks > 0)
        else:
            told = "some chunks have no sentences yet, so answers are found by whole chunks"
            self._tally.note(f"{told}: `ragcache reindex -c {shlex.quote(collection.name)}` adds them at once")
        note_kv(self._room, self._tally, collection, survey.unchanged)
        if self._options.splitter and not writer.bound:
            kept = self._library.catalog.collections.current(collection).splitter
            if kept != collection.splitter:
                self._tally.note(
                    f"nothing was cut by {collection.splitter!r}, so new files are cut by {kept!r} as before"
                )

    def _rehearse(self, paths: Sequence[Path]) -> None:
        """What an ingest would do, and how much that is; nothing of it is done."""
        from app.ingestion.estimate import IngestEstimate, tokens_per_second

        catalog, options, tally = self._library.catalog, self._options, self._tally
        states = catalog.documents.states(self._collection) if self._collection else {}
        survey = self._survey(paths, states)
        tally.gone = self._gone(paths, states, survey)
        tally.pruned = len(tally.gone)
        estimate: IngestEstimate | None = None
        for file, outcome in self._read(survey):
            if isinstance(outcome, ReadFile):
                if estimate is None:
                    wanted = self._wanted_splitter(self._collection) if self._collection else options.splitter
                    kv = self._room.mode in ("auto", "eager")
                    estimate = IngestEstimate(self._library, self._models, self._collection, wanted, kv)
                try:
                    estimate.add(outcome.parsed)
                except OF_A_TEXT as error:
                    tally.failed.append(uncut(file, error))
                    continue
                tally.document(replaced=file.is_ready, nbytes=outcome.stamp.size)
        if estimate is not None:
            tally.estimated(estimate.size, tokens_per_second(catalog, estimate.size.kv_bytes > 0))
            self._tell(estimate_line(self._room, tally.added + tally.replaced, estimate.size, about=not estimate.exact))
            if not estimate.exact:
                tally.note("a rehearsal cuts only so much text: the rest is reckoned by the first part")

    def _cut_as_asked(self, collection: Collection) -> Collection:
        """With the splitter of this ingest, which the catalog has when it has cut a document."""
        wanted = self._wanted_splitter(collection)
        if wanted is None or wanted == collection.splitter:
            return collection
        self._library.splitter(collection, wanted)  # raises where there is no such splitter
        return replace(collection, splitter=wanted)

    def _wanted_splitter(self, collection: Collection) -> str | None:
        if (asked := self._options.splitter) is not None:
            self._library.trust_splitter(asked)
            return asked
        if not self._library.catalog.source(collection).position().high:  # nothing was ever cut, so it may be wrong
            return self._library.settings.splitter
        return None

    def _survey(self, paths: Sequence[Path], states: Mapping[str, FileState]) -> FolderSurvey:
        settings, tally = self._library.settings, self._tally
        survey = take_survey(paths, self._options, states, (settings.data_dir, settings.cache_dir))
        tally.unchanged, tally.skipped = survey.unchanged, survey.skipped
        tally.failed += survey.failures
        for folder in survey.own:
            tally.note(f"{printable(folder)} is left out: ragcache keeps its own files there")
        if unread := survey.unread():
            tally.note(unread)
        if tally.skipped:
            tally.note("files that failed before and have not changed are skipped: --retry-failed reads them again")
        return survey

    def _read(self, survey: FolderSurvey, outlook: Outlook | None = None) -> Iterator[tuple[Pending, Outcome]]:
        """Each file with what came of it, counted where it is no document, and reported. The outlook is told first."""
        files, nbytes, of_nbytes = 0, 0, sum(file.size for file in survey.pending)
        self._reached = IngestProgress(0, len(survey.pending), 0, of_nbytes, 0)
        with self._readers or Readers(self._options.workers) as readers:
            self._readers = readers
            outcomes = readers.read(survey.pending, self._options.retry_failed)
            if outlook is not None:
                first, outcomes = looked_at(outcomes)
                if line := outlook.estimate_line(first, survey.pending[len(first) :]):
                    self._tell(line)
            for file, outcome in outcomes:
                self._check_stopped()  # before what was cut off is told as a file that cannot be read
                match outcome:
                    case ReadFile():
                        self._tally.of_files.add(outcome.notes)
                    case Same() if file.is_ready:
                        self._tally.unchanged += 1
                    case Same():
                        self._tally.skipped += 1
                    case Unread():
                        to_blame = outcome.stamp is not None
                        stays = "; its older version stays" if file.keeps_older(to_blame) else ""
                        self._tally.failed.append(Failure(file.source, outcome.reason + stays, lasting=to_blame))
                yield file, outcome
                files, nbytes = files + 1, nbytes + file.size
                self._reached = IngestProgress(files, len(survey.pending), nbytes, of_nbytes, len(self._tally.failed))
                self._progress(self._reached)

    def _within(self, nbytes: int) -> None:
        """So many bytes of the file that is being written are done."""
        self._check_stopped()
        self._progress(replace(self._reached, nbytes=self._reached.nbytes + nbytes))

    def _gone(self, paths: Sequence[Path], states: Mapping[str, FileState], survey: FolderSurvey) -> Mapping[str, int]:
        """What is to be pruned, as it is at this moment: source and id. Raises IngestError where it may be too much."""
        if not self._options.prune:
            return {}
        lost = lost_documents(paths, states, survey.unlisted, self._options.prune == "all")
        lost.refuse_emptied()
        for folder in lost.absent:
            self._tally.note(
                f"{printable(Path(folder))} is not there or not mounted, so the documents below it stay: "
                "`ragcache rm` deletes them"
            )
        return lost.documents
