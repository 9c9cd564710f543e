"""The indexes of a collection, without the models that a search takes: caught up, removed, or made anew, and the chunks
embedded again where the embedder is another one.

The new vectors are gathered in a file beside the old indexes, then go into SQL in one transaction, which also gives the
collection a new index folder. Killed before it, everything is as it was, and the next run takes the file up; killed
after it, the next run builds the indexes, as a question would.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import numpy as np
import xxhash

from app.errors import CatalogError, IngestStopped, MaintenanceError
from app.library import INDEXES, LOG, Library, remove_index
from app.library.catalog.records import Collection
from app.library.learning import TROUBLE, learn_if_due
from app.library.searchers import open_indexes
from app.models import Models
from app.models.embedding import embed_chunks
from ragcache.host import private_file
from retriever import IntArray, RetrieverError, Vectors
from retriever.derived import PART_AT_END

MOST_LEFT_S = 10.0  # that an ingest takes to add sentences for a command that was killed
_BATCH, _FEW = 256, 32
_ROWS = 2048  # of the file, read at once
log = logging.getLogger(__name__)


def forget(
    library: Library, collection: Collection, part: int = PART_AT_END, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Let the index files forget what was deleted, where that is one of so many chunks; with 0 whatever it is. What
    searches them forgets it by itself. Between two of them it ends when `stopped` says so.
    """
    source = library.catalog.source(collection)
    opened = library.opened_indexes(collection)
    for index in opened or open_indexes(collection, library.index_folder(collection)):
        if stopped():
            return
        index.sweep()
        saved = index.saved()
        if saved is None:
            continue  # nothing to forget
        gone = source.lost(saved.retired)
        if not gone or (part and gone * part < saved.live):
            continue
        if opened or not index.discard():  # what is not trusted is built anew by who opens it, and not to forget
            index.catch_up(source)
            index.save()
        if collection.uid not in {one.uid for one in library.catalog.collections.all()}:
            discard(library, collection)  # it was deleted meanwhile, and its folder has come back
            return


def forget_all(library: Library, stopped: Callable[[], bool] = lambda: False) -> None:
    """Of whatever collection, now and then: no deleted text leaves a trace in the files for long. Raises RetrieverError
    and MaintenanceError when it has tried all.
    """
    failed: RetrieverError | MaintenanceError | None = None
    for collection in library.catalog.collections.all():
        try:
            forget(library, collection, part=0, stopped=stopped)
        except CatalogError:
            continue  # deleted just now, or embedded again
        except (RetrieverError, MaintenanceError) as error:  # which keeps no other
            failed = error
    if failed is not None:
        raise failed


def rebuild(library: Library, collection: Collection) -> None:
    """Both indexes anew, from the embeddings and texts in SQL."""
    source = library.catalog.source(collection)
    for index in open_indexes(collection, library.index_folder(collection)):
        index.rebuild(source)
        index.save()


def discard(library: Library, collection: Collection) -> None:
    """Remove the index files of a collection that is gone."""
    remove_index(library.index_folder(collection))


@dataclass(frozen=True)
class Reindexed:
    """So far; `done` when the indexes are there too."""

    collection: Collection
    chunks: int  # of the collection
    embedded: int = 0  # of them, anew, in this run or one that was stopped
    in_parts: int = 0  # of those of this run
    sentences: int = 0  # chunks whose sentences were embedded in this run
    done: bool = False


def reindex(library: Library, models: Models, name: str) -> Generator[Reindexed, None, None]:
    """Reports how far it is; the last report says `done`. Raises CatalogError while an ingest runs."""
    with library.catalog.alone_with(name) as collection:
        before, report = collection, Reindexed(collection, library.catalog.source(collection).position().live)
        if models.embedder_fingerprint != collection.embedder_fingerprint:
            for report in _reembed(library, models, collection):
                yield report
        for count in add_sentences(library, models, report.collection):
            report = replace(report, sentences=report.sentences + count)
            yield report
        rebuild(library, report.collection)
        learn_if_due(library, models, collection, anew=True)
        _sweep(library, before, report.collection)
        yield replace(report, done=True)


def _reembed(library: Library, models: Models, collection: Collection) -> Iterator[Reindexed]:
    """The last report is of the collection as it is now."""
    fingerprint, dimension = models.embedder_fingerprint, models.embedder.dimension
    source = library.catalog.source(collection)
    live = source.live_ids({})
    path = library.index_folder(collection) / f"{library.log_name}{fingerprint}.vectors"
    with suppress(OSError):  # of a version that did not name its database, as a collection's folder does
        if not path.exists():
            path.with_name(f"{LOG}{fingerprint}.vectors").rename(path)
    log = VectorLog(path, dimension)
    try:
        known = np.intersect1d(log.ids(), live)
        report = Reindexed(collection, len(live), len(known))
        yield report
        for ids, _, _ in source.added(0, _BATCH):
            lacking = ids[np.isin(ids, known, invert=True)]
            if len(lacking):
                found, vectors, long = _embedded(library, models, lacking)
                log.append(found, vectors)
                report = replace(report, embedded=report.embedded + len(lacking), in_parts=report.in_parts + long)
                yield report
    except OSError as error:
        raise MaintenanceError(
            f"cannot keep the new embeddings in {log.path}: {error}. Free some space or make it writable, and run the "
            "command again: it goes on from here"
        ) from error
    new = library.catalog.collections.reembed(
        collection, library.settings.embedder, fingerprint, dimension, _newest(log, live)
    )
    yield replace(report, collection=new)


def add_sentences(library: Library, models: Models, collection: Collection, at_once: int = 0) -> Iterator[int]:
    """To chunks that were embedded anew, or ingested before these were kept; how many, now and then. A run that was
    stopped goes on here: the first chunk comes last, so all have theirs where that has.
    """
    before: int | None = None
    while lacking := library.catalog.sentences.last_lacking(collection, before, at_once or _BATCH):
        _add_sentences(library, models, collection, lacking)
        before = lacking[-1][0]
        yield len(lacking)


def _add_sentences(library: Library, models: Models, collection: Collection, chunks: Sequence[tuple[int, str]]) -> None:
    packed = models.sentences.packed([text for _, text in chunks])
    rows = [(one, of_it) for (one, _), of_it in zip(chunks, packed, strict=True)]
    library.catalog.sentences.add(collection, rows)


def finish_sentences(library: Library, models: Models, collection: Collection, check: Callable[[], None]) -> None:
    """Of a long document that somebody was stopped amid. `check` ends it by what it raises."""
    kept = library.catalog.sentences
    after = kept.unfinished(collection)
    if after is None:
        return
    while lacking := kept.lacking(collection, after, _BATCH):  # ascending: the last chunk tells whether it is done
        _add_sentences(library, models, collection, lacking)
        after = lacking[-1][0]
        check()


def add_left_sentences(library: Library, models: Models, collection: Collection, check: Callable[[], None]) -> bool:
    """Of chunks that were embedded anew by a command that was killed, or are of before these were kept: some of them,
    so that no ingest takes long for it, and none fails. Whether all have theirs now. All chunks are only looked at
    where nothing was learnt from them yet, as after that command, or the first lacks its own, which is the last to get
    them.
    """
    kept, until = library.catalog.sentences, monotonic() + MOST_LEFT_S
    collection = library.catalog.collections.current(collection)
    if collection.retrieval is not None and kept.begun(collection):
        return True
    try:
        for _ in add_sentences(library, models, collection, _FEW):
            check()
            if monotonic() >= until:
                return not kept.lacking(collection, 0, 1)
    except IngestStopped:
        raise
    except TROUBLE as error:
        log.warning("sentences of collection %r could not be embedded: %s", collection.name, error)
        return False
    return True


def _embedded(library: Library, models: Models, ids: IntArray) -> tuple[IntArray, Vectors, int]:
    """As an ingest embeds them, and how many in parts; what is gone meanwhile is left out."""
    chunks = [found.chunk for found in library.catalog.chunks.found(ids)]
    vectors, long = embed_chunks(models.embedder, [(chunk.heading, chunk.text) for chunk in chunks])
    return np.array([chunk.id for chunk in chunks], dtype=np.int64), vectors, long


def _newest(log: VectorLog, live: IntArray) -> Iterator[tuple[IntArray, Vectors]]:
    """Of chunks that are still there."""
    for ids, vectors in log.batches():
        there = np.isin(ids, live)
        yield ids[there], vectors[there]


def _sweep(library: Library, before: Collection, now: Collection) -> None:
    """Remove what embedding again has left: its files, and the folders of indexes that it has replaced, in this run or
    in one that was killed. Of the latter the files tell.
    """
    folder, replaced = library.index_folder(now), library.index_folder(before)
    left = {path.parent for path in (library.settings.data_dir / INDEXES).glob(f"*/{library.log_name}*")} | {replaced}
    left -= {library.index_folder(one) for one in library.catalog.collections.all()}
    try:
        for log in folder.glob(f"{LOG}*"):
            log.unlink(missing_ok=True)
        for gone in left:
            with suppress(FileNotFoundError):  # another process sweeps too
                shutil.rmtree(gone)
    except OSError as error:
        raise MaintenanceError(f"all is indexed, but old files cannot be removed: {error}. Delete them") from error


class VectorLog:
    """New embeddings on their way into SQL: a file that is only ever added to, so that a stopped run can go on.

    Each record says which chunk it is of and has a checksum: what a crash has torn is passed over. One process writes
    at a time. Raises OSError.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self.path = path
        self._record = np.dtype([("id", "<i8"), ("check", "<u8"), ("vector", "<f4", (dimension,))])

    def append(self, ids: IntArray, vectors: Vectors) -> None:
        """`ids` [n], `vectors` [n, dimension]"""
        rows = np.empty(len(ids), self._record)
        rows["id"], rows["vector"] = ids, vectors
        rows["check"] = [_check(row) for row in rows]
        private_file(self.path)
        with self.path.open("ab") as file:
            whole = file.tell() - file.tell() % self._record.itemsize
            file.truncate(whole)  # what a killed writer has left of a record
            file.write(rows.tobytes())

    def batches(self) -> Iterator[tuple[IntArray, Vectors]]:
        """All sound records, in the order in which they were written."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            while data := file.read(_ROWS * self._record.itemsize):
                rows = np.frombuffer(data[: len(data) - len(data) % self._record.itemsize], self._record)
                sound = rows[[row["check"] == _check(row) for row in rows]] if len(rows) else rows
                yield sound["id"].astype(np.int64), sound["vector"].astype(np.float32)

    def ids(self) -> IntArray:
        return np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in self.batches())])


def _check(row: np.void) -> int:
    return xxhash.xxh3_64_intdigest(row["id"].tobytes() + row["vector"].tobytes())
