"""A server's library, to be looked at: documents with their chunks, files on their way, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from app.client.answers import UNKNOWN
from app.client.connection import ServerConnection
from app.client.files import AT_ONCE, ENDED, ROUTE, collection_card, delete_collection, delete_document
from app.client.files import collections as listed_collections

__all__ = ["ENDED", "collection_card", "delete_collection", "delete_document", "listed_collections"]  # from here too
JOBS = ("v1", "jobs")
PAGE = 200  # documents
MOST_JOBS = 1000  # as many as may wait
Record = Mapping[str, Any]


def create(connection: ServerConnection, collection: str) -> None:
    """Raises ServerError where there is one of this name."""
    connection.ask("POST", *ROUTE, body={"name": collection})


def page_of_documents(connection: ServerConnection, collection: str, after: int = 0) -> tuple[list[Record], bool]:
    """By their ids, and whether there are more behind them."""
    told = connection.ask("GET", *ROUTE, collection, "documents", query={"limit": PAGE, "after": after, "kv": "true"})
    return _records(connection, told), told.get("has_more") is True


def document(connection: ServerConnection, collection: str, document_id: int) -> Record:
    """With its `text`, and its `chunks` as spans of that."""
    return _record(
        connection, connection.ask("GET", *ROUTE, collection, "documents", str(document_id), query={"kv": "true"})
    )


def send(connection: ServerConnection, collection: str, name: str, file: BinaryIO) -> Record:
    """The job that ingests it. The file is read from its beginning, a block at a time."""
    nbytes = file.seek(0, 2)
    return _record(connection, connection.send(lambda: _blocks(file), nbytes, *ROUTE, collection, "documents", name))


def send_samples(connection: ServerConnection, collection: str) -> list[Record]:
    """The jobs of the documents that come with the program."""
    return _records(connection, connection.ask("POST", *ROUTE, collection, "samples"))


def suggested_questions(connection: ServerConnection, collection: str) -> list[str]:
    told = connection.ask("GET", *ROUTE, collection, "questions")
    try:
        return [str(one) for one in told["data"]]
    except UNKNOWN:
        raise connection.unknown() from None


def jobs(connection: ServerConnection, collection: str | None = None, limit: int = MOST_JOBS) -> list[Record]:
    """The last ones that ingest files, into it where one is named; the newest first."""
    of = {} if collection is None else {"collection": collection}
    return _records(connection, connection.ask("GET", *JOBS, query={"kind": "ingest", "limit": limit, **of}))


def cancel(connection: ServerConnection, job_id: str) -> Record:
    return _record(connection, connection.ask("DELETE", *JOBS, job_id))


def retry(connection: ServerConnection, job_id: str) -> Record:
    return _record(connection, connection.ask("POST", *JOBS, job_id, "retry"))


def follow(connection: ServerConnection, job_id: str) -> Iterator[Record]:
    """The job each time that something of it has changed, until it has ended."""
    with connection.events("GET", *JOBS, job_id, "events") as events:
        for event in events:
            yield _record(connection, event.data)


def settings(connection: ServerConnection) -> list[Record]:
    return _records(connection, connection.ask("GET", "v1", "settings"))


def cache_shares(connection: ServerConnection) -> Mapping[str, Record]:
    """What each collection has in the cache, by its name."""
    told = connection.ask("GET", "v1", "cache")
    try:
        return {str(one["name"]): dict(one) for one in told["collections"]}
    except UNKNOWN:
        raise connection.unknown() from None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(AT_ONCE):
        yield block


def _records(connection: ServerConnection, told: Any) -> list[Record]:
    try:
        return [dict(one) for one in told["data"]]
    except UNKNOWN:
        raise connection.unknown() from None


def _record(connection: ServerConnection, told: Any) -> Record:
    if not isinstance(told, dict):
        raise connection.unknown()
    return told
