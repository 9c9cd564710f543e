"""`ingest`, `ls` and `rm` where a server is named: the same is shown as of this machine, as far as it tells that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from app.cli.flags import of_server
from app.cli.output import plain, print_json, table
from app.client.amounts import count, size
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
        self._names: set[str] = set()
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
        if path.name in self._names:
            self._fail(path, "has the name of another file that was sent: a server knows documents by their names")
            return
        self._names.add(path.name)
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
        for note in told["notes"]:
            self._tally.note(str(note))

    def _fail(self, path: Path, reason: str) -> None:
        self._tally.failed.append(Failure(str(path), reason))


def ls_of_server(server: NamedServer, collection: str | None, failed: bool, as_json: bool, **flags: Any) -> None:
    of_server(server, flags)
    connection = ServerConnection(server)
    if collection is None and not failed:
        found = files.collections(connection)
        if as_json:
            print_json({"collections": [_collection(one) for one in found]})
        else:
            _tell_collections(found)
        return
    chosen = collection or server.collection
    documents = files.documents(connection, chosen, failed)
    if as_json:
        print_json({"collection": chosen, "documents": [_document(one) for one in documents]})
    elif not documents:
        print(f"no {'failed ' if failed else ''}documents in {plain(chosen)}")
    elif failed:
        rows = [(one["id"], one["name"], one["error"] or "") for one in documents]
        print(table(("id", "name", "reason"), rows, right=("id",)))
    else:
        _tell_documents(documents, chosen)


def rm_of_server(
    server: NamedServer,
    collection: str,
    documents: Sequence[str],
    confirm: Callable[[str], None],
    dry_run: bool,
    as_json: bool,
) -> None:
    """The whole collection where no documents are named. `confirm` raises where it is not to be."""
    connection = ServerConnection(server)
    told = {"collection": collection, "collection_deleted": not documents}
    chosen = [_named(connection, one, collection) for one in documents]
    unique = {one["id"]: one for one in chosen}
    if dry_run:
        _tell_chosen(list(unique.values()) if documents else files.documents(connection, collection), told, as_json)
        return
    if documents:
        number = len(unique)
        lines = [f"  {number}  {plain(one['name'])}" for number, one in unique.items()]
        confirm("\n".join([f"{count(number, 'document')} of {plain(collection)} on {server.url}", *lines, ""]))
        gone = [files.delete_document(connection, collection, document_id) for document_id in unique]
    else:
        number = files.collection_card(connection, collection)["documents"]
        confirm(f"collection {plain(collection)} on {server.url} with {count(number, 'document')}")
        gone = [files.delete_collection(connection, collection)]
    chunks, variants = (sum(one[name] for one in gone) for name in ("chunks", "kv_variants"))
    known = all(one["kv_told"] for one in gone)
    if as_json:
        print_json(told | {"documents": number, "chunks": chunks, "kv_variants": variants if known else None})
        return
    kv = f", {count(variants, 'KV variant')}" if known else ""
    print(
        f"deleted {'' if documents else f'collection {plain(collection)}: '}{count(number, 'document')}, "
        f"{count(chunks, 'chunk')}{kv}"
    )


def _tell_chosen(documents: Sequence[dict[str, Any]], told: dict[str, Any], as_json: bool) -> None:
    chunks = sum(one["chunks"] for one in documents)
    if as_json:
        sources = [one["name"] for one in documents]
        print_json(told | {"dry_run": True, "documents": len(documents), "chunks": chunks, "sources": sources})
        return
    for one in documents:
        print(f"would delete {one['id']}  {plain(one['name'])}")
    print(f"would delete {count(len(documents), 'document')}, {count(chunks, 'chunk')}, and their KV")


def _named(connection: ServerConnection, name: str, collection: str) -> dict[str, Any]:
    found = files.find_document(connection, collection, name)
    if found is None:
        raise NotFound(f"no document {name!r} in {collection!r}: `ragcache ls -c {plain(collection)}` lists them")
    return found


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


def _tell_collections(found: Sequence[dict[str, Any]]) -> None:
    if not found:
        print("no collections yet: `ragcache ingest PATH` makes one")
        return
    titles = ("collection", "documents", "failed", "chunks", "tokens", "size")
    numbers = titles[1:-1]
    rows = [(one["name"], *(f"{one[name]:,}" for name in numbers), size(one["bytes"])) for one in found]
    print(table(titles, rows, right=titles[1:]))


def _tell_documents(documents: Sequence[dict[str, Any]], collection: str) -> None:
    titles = ("id", "state", "chunks", "tokens", "pages", "name")
    rows = [
        (one["id"], one["state"], f"{one['chunks']:,}", f"{one['tokens']:,}", one["pages"] or "", one["name"])
        for one in documents
    ]
    print(table(titles, rows, right=("id", "chunks", "tokens", "pages")))
    bad = sum(one["state"] == "failed" for one in documents)
    more = f", {bad:,} of them failed: `ragcache ls -c {plain(collection)} --failed` tells why" if bad else ""
    print(f"\n{count(len(documents), 'document')}{more}")
