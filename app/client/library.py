"""A server's library, to be looked at: documents with their chunks, files on their way, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO

from app.client.connection import CACHE, COLLECTIONS, JOBS, Record, ServerConnection
from app.client.files import AT_ONCE, collection_card, delete_collection, delete_document
from app.client.files import collections as listed_collections
from app.job_states import ENDED

__all__ = ["ENDED", "collection_card", "delete_collection", "delete_document", "listed_collections"]  # from here too
PAGE = 200  # documents
MOST_JOBS = 1000  # as many as may wait


def create(connection: ServerConnection, collection: str) -> None:
    """Raises ServerError where there is one of this name."""
    connection.ask("POST", *COLLECTIONS, body={"name": collection})


def page_of_documents(connection: ServerConnection, collection: str, after: int = 0) -> tuple[list[Record], bool]:
    """By their ids, and whether there are more behind them."""
    query = {"limit": PAGE, "after": after, "kv": "true"}
    told = connection.ask("GET", *COLLECTIONS, collection, "documents", query=query)
    return connection.records(told), told.get("has_more") is True


def listed_document(connection: ServerConnection, collection: str, document_id: int) -> Record | None:
    """As a page of documents has it: without its text. None where there is none of this id."""
    if document_id < 1:
        return None
    query = {"limit": 1, "after": document_id - 1, "kv": "true"}
    found = connection.records(connection.ask("GET", *COLLECTIONS, collection, "documents", query=query))
    return found[0] if found and found[0].get("id") == document_id else None


def document(connection: ServerConnection, collection: str, document_id: int) -> Record:
    """With its `text`, and its `chunks` as spans of that."""
    path = (*COLLECTIONS, collection, "documents", str(document_id))
    return connection.record(connection.ask("GET", *path, query={"kv": "true"}))


def send(connection: ServerConnection, collection: str, name: str, file: BinaryIO) -> Record:
    """The job that ingests it. The file is read from its beginning, a block at a time."""
    nbytes = file.seek(0, 2)
    path = (*COLLECTIONS, collection, "documents", name)
    return connection.record(connection.send(lambda: _blocks(file), nbytes, *path))


def send_samples(connection: ServerConnection, collection: str) -> list[Record]:
    """The jobs of the documents that come with the program."""
    return connection.records(connection.ask("POST", *COLLECTIONS, collection, "samples"))


def suggested_questions(connection: ServerConnection, collection: str) -> list[str]:
    told = connection.ask("GET", *COLLECTIONS, collection, "questions")
    with connection.understood():
        return [str(one) for one in told["data"]]


def jobs(connection: ServerConnection, collection: str | None = None, limit: int = MOST_JOBS) -> list[Record]:
    """The last ones that ingest files, into it where one is named; the newest first."""
    of = {} if collection is None else {"collection": collection}
    return connection.records(connection.ask("GET", *JOBS, query={"kind": "ingest", "limit": limit, **of}))


def cancel(connection: ServerConnection, job_id: str) -> Record:
    return connection.record(connection.ask("DELETE", *JOBS, job_id))


def retry(connection: ServerConnection, job_id: str) -> Record:
    return connection.record(connection.ask("POST", *JOBS, job_id, "retry"))


def follow(connection: ServerConnection, job_id: str) -> Iterator[Record]:
    """The job each time that something of it has changed, until it has ended."""
    with connection.events("GET", *JOBS, job_id, "events") as events:
        for event in events:
            yield connection.record(event.data)


def settings(connection: ServerConnection) -> list[Record]:
    return connection.records(connection.ask("GET", "v1", "settings"))


def cache_shares(connection: ServerConnection) -> Mapping[str, Record]:
    """What each collection has in the cache, by its name."""
    told = connection.ask("GET", *CACHE)
    with connection.understood():
        return {str(one["name"]): dict(one) for one in told["collections"]}


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(AT_ONCE):
        yield block
