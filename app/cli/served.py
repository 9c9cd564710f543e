"""`ingest`, `ls` and `rm` where a server is named: the same is shown as of this machine, as far as it tells that."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from app.cli.flags import of_server
from app.cli.listing import show_collections, show_documents
from app.cli.output import plain
from app.client import files
from app.client.address import NamedServer
from app.client.connection import ServerConnection, ServerError
from app.errors import LoadError, NotFound
from app.ingestion import Failure, IngestResult, IngestTally
from app.loaders.discovery import WalkTally, discover

AHEAD = 32  # files that the server has and has not ingested yet


class SentFiles:
    """Files on their way into a collection of a server, which is made where there is none."""

    def __init__(self, connection: ServerConnection, collection: str):
        self._tally, self._start = IngestTally(), monotonic()
        self._connection, self._collection = connection, collection
        self._names = files.SentNames()
        self._waiting: deque[tuple[Path, str]] = deque()

    @property
    def result(self) -> IngestResult:
        """What became of them so far."""
        return self._tally.result(self._collection, False, monotonic() - self._start)

    def send(self, paths: Sequence[Path], globs: Sequence[str]) -> None:
        """All of them, until they are ingested. Raises ServerError where no other file could be sent either."""
        files.create_collection(self._connection, self._collection)
        tally = WalkTally()
        for path in discover(paths, globs, tally):
            self._send(path)
            if len(self._waiting) > AHEAD:
                self._follow()
        for problem in tally.problems:
            self._fail(problem.path, problem.reason)
        while self._waiting:
            self._follow()

    def _send(self, path: Path) -> None:
        if not self._names.add(path.name):
            self._fail(path, files.SAME_NAME)
            return
        try:
            self._waiting.append((path, files.upload(self._connection, self._collection, path)))
        except LoadError as error:
            self._fail(path, error.reason)
        except ServerError as error:
            if error.answered not in files.OF_FILE:
                raise
            self._fail(path, str(error))

    def _follow(self) -> None:
        path, job_id = self._waiting[0]
        job = files.outcome(self._connection, job_id)
        self._waiting.popleft()
        if job["state"] != "done":
            self._fail(path, str(job["error"] or job["state"]))
            return
        told = job["progress"]
        for name in files.GROWING:
            setattr(self._tally, name, getattr(self._tally, name) + told[name])
        way = told["outcome"]
        if way in ("added", "replaced", "unchanged"):
            setattr(self._tally, way, getattr(self._tally, way) + 1)
        self._tally.of_files.add(map(str, told["notes"]))

    def _fail(self, path: Path, reason: str) -> None:
        self._tally.failed.append(Failure(str(path), reason))


def ls_of_server(server: NamedServer, collection: str | None, failed: bool, as_json: bool, **flags: Any) -> None:
    of_server(server, flags)
    connection = ServerConnection(server)
    if collection is None and not failed:
        show_collections([_collection(one) for one in files.collections(connection)], as_json)
        return
    chosen = collection or server.collection
    documents = files.documents(connection, chosen, failed)
    show_documents([_document(one) for one in documents], chosen, failed, as_json)


class ServedCollection:
    """Deleted from, as `rm` deletes."""

    def __init__(self, server: NamedServer, collection: str):
        self.collection, self.where = collection, f" on {server.url}"
        self._connection = ServerConnection(server)
        self._found: dict[int, dict[str, Any]] = {}

    def size(self) -> int:
        return int(files.collection_card(self._connection, self.collection)["documents"])

    def documents(self, named: Sequence[str]) -> dict[int, str]:
        found = map(self._named, named) if named else files.documents(self._connection, self.collection)
        self._found = {one["id"]: one for one in found}
        return {number: one["name"] for number, one in self._found.items()}

    def chunks(self) -> int:
        return sum(one["chunks"] for one in self._found.values())

    def remove(self, ids: Sequence[int]) -> dict[str, int | None]:
        gone = [files.delete_document(self._connection, self.collection, number) for number in ids]
        return _gone(len(ids), gone)

    def remove_all(self) -> dict[str, int | None]:
        documents = self.size()
        return _gone(documents, [files.delete_collection(self._connection, self.collection)])

    def _named(self, name: str) -> dict[str, Any]:
        found = files.find_document(self._connection, self.collection, name)
        if found is None:
            told = f"`ragcache ls -c {plain(self.collection)}` lists them"
            raise NotFound(f"no document {name!r} in {self.collection!r}: {told}")
        return found


def _gone(documents: int, gone: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    chunks, variants = (sum(one[name] for one in gone) for name in ("chunks", "kv_variants"))
    known = all(one["kv_told"] for one in gone)
    return {"documents": documents, "chunks": chunks, "kv_variants": variants if known else None}


def _collection(one: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: one[name] for name in ("documents", "failed", "chunks", "tokens")}
    return {"name": one["name"], **numbers, "nbytes": one["bytes"], "created": _moment(one["created"])}


def _document(one: dict[str, Any]) -> dict[str, Any]:
    names = ("title", "kind", "state", "error", "chunks", "tokens", "pages", "bytes")
    return {"id": one["id"], "source": one["name"], **{name: one[name] for name in names}} | {
        "updated": _moment(one["updated"])
    }


def _moment(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)
