"""`ragcache ls`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.flags import Json, configured
from app.cli.listing import show_collections, show_documents
from app.cli.output import fields
from app.cli.served import ls_of_server
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
            show_collections([_summary(one) for one in summaries(library, models)], as_json)
            return
        chosen = library.catalog.collections.get(settings.collection)
        documents = library.catalog.documents.listed(chosen, "failed" if failed else None)
    show_documents([_listed(one) for one in documents], settings.collection, failed, as_json)


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
