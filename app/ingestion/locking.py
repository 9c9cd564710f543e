"""One ingest at a time per collection, so that its chunk ids become visible in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from app.catalog import Catalog, Collection
from app.ingestion.errors import IngestError


@contextmanager
def held(path: Path, catalog: Catalog, collection: Collection, waiting: Callable[[str], None] | None) -> Iterator[None]:
    """The lock of a collection. While somebody else has it: wait, after telling `waiting`, or raise IngestError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            told = f"{_holder(catalog, collection)} is working on collection {collection.name!r}"
            if waiting is None:
                raise IngestError(f"{told}: try again when it is done, or wait for it with --wait") from None
            waiting(f"{told}: waiting for it")
            lock.acquire()
    except OSError as error:
        raise IngestError(f"cannot lock {path}: {error.strerror or error}. Make the data folder writable") from error
    try:
        yield
    finally:
        lock.release()


def _holder(catalog: Catalog, collection: Collection) -> str:
    """An ingest writes down its process. Others that hold the lock do not: a change of embedder, a deletion."""
    newest = catalog.runs.newest(collection, 1)
    if newest and newest[0].state == "running":
        return f"another ingest (process {newest[0].pid}, since {newest[0].started:%Y-%m-%d %H:%M} UTC)"
    return "another process"
