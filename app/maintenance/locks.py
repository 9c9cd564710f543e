"""Keeping ingests out while something is done to their collections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from filelock import FileLock, Timeout

from app.catalog import Collection
from app.maintenance.errors import MaintenanceError
from app.workspace import Workspace


@contextmanager
def ingest_locks(workspace: Workspace, *collections: Collection) -> Iterator[None]:
    """Hold the ingest locks of collections. Raises MaintenanceError at once where one is held by somebody else."""
    with ExitStack() as held:
        for collection in sorted(collections, key=lambda one: one.id):
            path = workspace.lock_file(collection)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(FileLock(path).acquire(timeout=0))
            except Timeout:
                raise MaintenanceError(
                    f"another process is working on collection {collection.name!r}: try again when it is done"
                ) from None
            except OSError as error:
                raise MaintenanceError(
                    f"cannot lock collection {collection.name!r} by {path}: {error}. Make the data folder writable"
                ) from error
        yield
