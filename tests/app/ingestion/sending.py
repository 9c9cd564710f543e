"""Files that are sent to a queue, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from tests.waiting import wait_until

PATIENCE_S = 60.0
TEXT = b"Of the harbour there is much to be told. " * 40
Queues = Callable[[], IngestQueue]


def send(queue: IngestQueue, collection: Collection, name: str, data: bytes, owner: str = "") -> StoredJob:
    with queue.incoming(name) as file:
        file.write(data)
        return queue.add(collection, name, file, owner)


def ended(library: Library, job: StoredJob) -> StoredJob:
    jobs = library.catalog.jobs
    wait_until(lambda: jobs.get(job.id, None).state in ("done", "failed", "cancelled"), PATIENCE_S)
    return jobs.get(job.id, None)


def spooled(queue: IngestQueue) -> list[Path]:
    return [path for path in queue.spool.folder.glob("*/*") if path.name != "lock"]


@contextmanager
def held(library: Library, collection: Collection) -> Iterator[None]:
    """As another ingest has it."""
    with library.catalog.alone(collection):
        yield
