"""`ragcache ls`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.flags import Json, configured
from app.cli.output import fields, plain, print_json, table
from app.cli.served import ls_of_server
from app.client.amounts import count, size
from app.compose import opened
from app.library.catalog.records import Listed
from app.library.inspection import Summary, summaries
from app.settings import Settings


@configured("collection", ..., "server", "data_dir", "cache_dir", served=ls_of_server)
def ls(
    settings: Settings,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="List the documents of this one.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only documents that could not be read, and why.")] = False,
    as_json: Json = False,
) -> None:
    """List the collections, or the documents of one."""
    with opened(settings, looking=True) as (library, models):
        if collection is None and not failed:
            found = summaries(library, models)
            print_json({"collections": [_summary(one) for one in found]}) if as_json else _tell_collections(found)
            return
        chosen = library.catalog.collections.get(settings.collection)
        documents = library.catalog.documents.listed(chosen, "failed" if failed else None)
    if as_json:
        print_json({"collection": settings.collection, "documents": [_listed(one) for one in documents]})
    else:
        _tell_documents(documents, settings.collection, failed)


def _summary(summary: Summary) -> dict[str, Any]:
    collection = summary.collection
    return {
        "name": collection.name,
        **vars(summary.totals),
        **fields(summary, "kv_variants", "kv_bytes", "other_kv_bytes"),
        **fields(collection, "embedder", "splitter"),
        "created": collection.created.isoformat(),
    }


def _listed(one: Listed) -> dict[str, Any]:
    document = one.document
    return {
        **fields(document, "id", "source", "title", "kind", "state", "error", "attempts"),
        **fields(one, "chunks", "tokens", "pages"),
        "bytes": document.size,
        "updated": document.updated.isoformat(),
    }


def _tell_collections(found: list[Summary]) -> None:
    if not found:
        print("no collections yet: `ragcache ingest PATH` makes one")
        return
    titles = ("collection", "documents", "failed", "chunks", "tokens", "size", "KV", "embedder")
    rows = [
        (
            one.collection.name,
            f"{one.totals.documents:,}",
            f"{one.totals.failed:,}",
            f"{one.totals.chunks:,}",
            f"{one.totals.tokens:,}",
            size(one.totals.nbytes),
            size(one.kv_bytes),
            one.collection.embedder,
        )
        for one in found
    ]
    print(table(titles, rows, right=titles[1:-1]))


def _tell_documents(documents: list[Listed], collection: str, failed: bool) -> None:
    if not documents:
        print(f"no {'failed ' if failed else ''}documents in {plain(collection)}")
        return
    if failed:
        rows = [(one.document.id, one.document.attempts, one.document.source, one.document.error) for one in documents]
        print(table(("id", "tries", "source", "reason"), rows, right=("id", "tries")))
        return
    titles = ("id", "state", "chunks", "tokens", "pages", "source")
    lines = [
        (
            one.document.id,
            one.document.state,
            f"{one.chunks:,}",
            f"{one.tokens:,}",
            one.pages or "",
            one.document.source,
        )
        for one in documents
    ]
    print(table(titles, lines, right=("id", "chunks", "tokens", "pages")))
    bad = sum(one.document.state == "failed" for one in documents)
    more = f", {bad:,} of them failed: `ragcache ls -c {plain(collection)} --failed` tells why" if bad else ""
    print(f"\n{count(len(documents), 'document')}{more}")
