"""`ragcache rm`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from app.cli.flags import CacheDir, DataDir, Json, Server, configure, of_server
from app.cli.output import plain, print_json
from app.cli.served import rm_of_server
from app.client.amounts import count
from app.client.address import find_server
from app.compose import opened
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, Document
from app.library.inspection import find_document
from app.library.removal import remove_collection, remove_documents

_SHOWN = 20  # documents that are named in the question


def rm(
    documents: Annotated[list[str] | None, typer.Argument(help="Their ids or paths.", show_default=False)] = None,
    collection: Annotated[str | None, typer.Option("--collection", "-c", help="The collection they are in.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole collection.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be deleted.")] = False,
    as_json: Json = False,
    server: Server = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
) -> None:
    """Delete documents, or a whole collection, with vectors, words and cached KV. The files themselves stay."""
    if bool(documents) == everything:
        raise typer.BadParameter("name documents by their ids or paths, or give --all for the whole collection")
    if collection is None:
        raise typer.BadParameter("say which collection: -c NAME")
    named_server = find_server(server)
    if named_server is not None:
        of_server(named_server, {"data_dir": data_dir, "cache_dir": cache_dir})
        rm_of_server(named_server, collection, documents or (), lambda what: _confirm(what, yes), dry_run, as_json)
        return
    settings = configure(data_dir=data_dir, cache_dir=cache_dir)
    with opened(settings, looking=dry_run) as (library, models):
        chosen = library.catalog.collections.get(collection)
        if dry_run:
            named = [find_document(library.catalog, one, chosen)[1] for one in documents or ()]
            _rehearse(library.catalog, chosen, named, as_json)
            return
        if everything:
            totals = library.catalog.collections.totals(chosen)
            _confirm(f"collection {plain(chosen.name)} with {count(totals.documents, 'document')}", yes)
            removal = remove_collection(library, models, chosen)
        else:
            found = [find_document(library.catalog, named, chosen)[1] for named in documents or ()]
            unique = {document.id: document for document in found}
            _confirm(_listed(list(unique.values()), plain(chosen.name)), yes)
            removal = remove_documents(library, models, chosen, list(unique))
    if as_json:
        print_json({"collection": chosen.name, **vars(removal), "collection_deleted": everything})
        return
    what = f"collection {plain(chosen.name)}: " if everything else ""
    print(
        f"deleted {what}{count(removal.documents, 'document')}, {count(removal.chunks, 'chunk')}, "
        f"{count(removal.kv_variants, 'KV variant')}"
    )


def _rehearse(catalog: Catalog, collection: Collection, named: Sequence[Document], as_json: bool) -> None:
    """Of a whole collection where no documents are named."""
    chosen = {document.id: document for document in named or catalog.documents.all(collection)}
    chunks = sum(one.chunks for one in catalog.documents.listed(collection) if one.document.id in chosen)
    if as_json:
        sources = [document.source for document in chosen.values()]
        told = {"collection": collection.name, "dry_run": True, "documents": len(chosen), "chunks": chunks}
        print_json(told | {"collection_deleted": not named, "sources": sources})
        return
    for document in chosen.values():
        print(f"would delete {document.id}  {plain(document.source)}")
    what = f"collection {plain(collection.name)}: " if not named else ""
    print(f"would delete {what}{count(len(chosen), 'document')}, {count(chunks, 'chunk')}, and their KV")


def _listed(documents: Sequence[Document], collection: str) -> str:
    lines = [f"  {document.id}  {plain(document.source)}" for document in documents[:_SHOWN]]
    more = [f"  … and {len(documents) - _SHOWN:,} more"] if len(documents) > _SHOWN else []
    return "\n".join([f"{count(len(documents), 'document')} of {collection}", *lines, *more, ""])


def _confirm(what: str, yes: bool) -> None:
    """On stderr, so that stdout holds the result alone."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here whether to delete: add --yes")
    print(f"Delete {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Abort
