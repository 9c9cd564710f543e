"""Collections and documents of a server: listed, sent, deleted; and the jobs that ingest what was sent."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from app.client.answers import is_count, number
from app.client.connection import COLLECTIONS, JOBS, ServerConnection, ServerError
from app.document_names import FORMS, composed
from app.errors import LoadError
from app.job_states import ENDED

PAGE = 1000  # documents
MOST_PAGES = 1000
AT_ONCE = 1 << 18  # bytes of a file
SAME_NAME = "has the name of another file that was sent: a server knows documents by their names"
OF_FILE = (400, 413, 415, 422)  # refusals of one file; the next may be taken
MISSING = 404
GROWING = ("chunks", "tokens", "kv_variants", "kv_bytes")
PROGRESS: Mapping[str, Any] = dict.fromkeys(GROWING, 0) | {
    "outcome": "",
    "notes": [],
}  # where a job tells nothing of it


class SentNames:
    """Of files that are sent together, as a server calls them."""

    def __init__(self) -> None:
        self._names = set[str]()

    def add(self, name: str) -> bool:
        """Whether none before has it."""
        is_new = composed(name) not in self._names
        self._names.add(composed(name))
        return is_new


def collections(connection: ServerConnection) -> list[dict[str, Any]]:
    return _records(connection, connection.ask("GET", *COLLECTIONS), _COLLECTION)


def documents(connection: ServerConnection, collection: str, failed: bool = False) -> list[dict[str, Any]]:
    """By their ids."""
    found: list[dict[str, Any]] = []
    state = {"state": "failed"} if failed else {}
    for _ in range(MOST_PAGES):
        last = found[-1]["id"] if found else 0
        new, more = _page(connection, collection, {"limit": PAGE, "after": last, **state})
        found += new
        if not more:
            return found
    raise ServerError(f"{connection.server.url} lists more than {len(found):,} documents")


def find_document(connection: ServerConnection, collection: str, told: str) -> dict[str, Any] | None:
    """By its id or its name."""
    if wanted := number(told):
        page, _ = _page(connection, collection, {"limit": 1, "after": wanted - 1})
        if page and str(page[0]["id"]) == told:
            return page[0]
    page, _ = _page(connection, collection, {"limit": len(FORMS), "name": told})
    same = [one for one in page if composed(one["name"]) == composed(told)]
    return min(same, key=lambda one: one["name"] != told, default=None)


def _page(connection: ServerConnection, collection: str, query: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Documents in the order of their ids, and whether there are more, as behind a full page alone."""
    page = connection.ask("GET", *COLLECTIONS, collection, "documents", query=query)
    found = _records(connection, page, _DOCUMENT)
    more = page.get("has_more") is True
    ids = [query.get("after", 0), *(one["id"] for one in found)]
    if len(found) > query["limit"] or (more and len(found) < query["limit"]):
        raise connection.unknown()
    if any(two <= one for one, two in pairwise(ids)):
        raise connection.unknown()
    return found, more


def collection_card(connection: ServerConnection, collection: str) -> dict[str, Any]:
    return _record(connection, connection.ask("GET", *COLLECTIONS, collection), _COLLECTION)


def create_collection(connection: ServerConnection, collection: str) -> None:
    """Where there is none of this name."""
    try:
        connection.ask("GET", *COLLECTIONS, collection)
    except ServerError as error:
        if error.answered != MISSING:
            raise
        connection.ask("POST", *COLLECTIONS, body={"name": collection})


def delete_collection(connection: ServerConnection, collection: str) -> dict[str, Any]:
    return _removed(connection, connection.ask("DELETE", *COLLECTIONS, collection))


def delete_document(connection: ServerConnection, collection: str, document_id: int) -> dict[str, Any]:
    return _removed(connection, connection.ask("DELETE", *COLLECTIONS, collection, "documents", str(document_id)))


def upload(connection: ServerConnection, collection: str, path: Path) -> str:
    """The id of the job that ingests it, as the document of its name. Raises LoadError where it cannot be sent."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise LoadError(path, "has a name that is no UTF-8, and servers take no other: rename it") from None
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            told = os.fstat(file.fileno())
            if not stat.S_ISREG(told.st_mode):
                raise LoadError(path, "is no file")
            parts = (*COLLECTIONS, collection, "documents", path.name)
            job = connection.send(lambda: _blocks(path, file, told.st_size), told.st_size, *parts)
    except OSError as error:
        raise LoadError(path, f"cannot be read: {error.strerror or error}") from error
    return str(_record(connection, job, {"id": str})["id"])


def outcome(connection: ServerConnection, job_id: str) -> Mapping[str, Any]:
    """Of a job, when it has ended: its `state`, `error` and `progress`, with all of PROGRESS."""
    with connection.events("GET", *JOBS, job_id, "events") as events:
        for event in events:
            if event.name == "error":  # such as a key that is good no more
                problem = _record(connection, event.data.get("error"), {"message": str})
                raise ServerError(f"{connection.server.url}: {problem['message']}")
            job = _record(connection, event.data, {"state": str, "progress": dict})
            if job["state"] in ENDED:
                fields = {name: type(value) for name, value in PROGRESS.items()}
                progress = _record(connection, {**PROGRESS, **job["progress"]}, fields)
                return {**job, "error": event.data.get("error"), "progress": progress}
    raise connection.unfinished()


def _blocks(path: Path, file: BinaryIO, nbytes: int) -> Iterator[bytes]:
    """As much as was announced."""
    file.seek(0)
    while nbytes:
        block = file.read(min(nbytes, AT_ONCE))
        if not block:
            raise LoadError(path, "became shorter while it was sent")
        nbytes -= len(block)
        yield block


# -- what a server tells, as far as it is shown -----------------------------------------------------------------------

_COLLECTION = {"name": str, "created": int} | dict.fromkeys(("documents", "failed", "chunks", "tokens", "bytes"), int)
_DOCUMENT = dict.fromkeys(("name", "title", "kind", "state"), str) | dict.fromkeys(
    ("id", "chunks", "tokens", "pages", "bytes", "updated"), int
)


def _records(connection: ServerConnection, told: Any, fields: Mapping[str, type]) -> list[dict[str, Any]]:
    with connection.understood():
        return [_record(connection, one, fields) | {"error": one.get("error")} for one in told["data"]]


def _record(connection: ServerConnection, told: Any, fields: Mapping[str, type]) -> dict[str, Any]:
    """Its fields, of these types, and numbers that count something. Raises ServerError."""
    found = {name: told.get(name) for name in fields} if isinstance(told, dict) else {}
    if not found or not all(_fits(value, fields[name]) for name, value in found.items()):
        raise connection.unknown()
    return found


def _removed(connection: ServerConnection, told: Any) -> dict[str, Any]:
    """`kv_told`: whether this key is told of `kv_variants`, which are 0 else."""
    known = isinstance(told, dict) and told.get("kv_variants") is not None
    found = _record(connection, told, {"chunks": int} | ({"kv_variants": int} if known else {}))
    return {"kv_variants": 0, "kv_told": known} | found


def _fits(value: Any, kind: type) -> bool:
    return is_count(value) if kind is int else isinstance(value, kind)
