"""`ragcache rm`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Protocol

import typer

from app.cli.flags import CacheDir, DataDir, Json, Server, configure, of_server
from app.cli.output import plain, print_json
from app.cli.served import ServedCollection
from app.client.address import find_server
from app.client.amounts import count
from app.compose import opened
from app.library import Library
from app.library.catalog.records import Collection
from app.library.inspection import find_document
from app.library.removal import remove_collection, remove_documents
from app.models import Models

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
        _delete(ServedCollection(named_server, collection), documents or (), yes, dry_run, as_json)
        return
    settings = configure(data_dir=data_dir, cache_dir=cache_dir)
    with opened(settings, looking=dry_run) as (library, models):
        chosen = library.catalog.collections.get(collection)
        _delete(_OwnCollection(library, models, chosen), documents or (), yes, dry_run, as_json)


class DeletedFrom(Protocol):
    """A collection of this machine, or of a server. What goes is told as JSON has it; None is not known."""

    @property
    def collection(self) -> str: ...
    @property
    def where(self) -> str: ...  # behind its name; "" for this machine
    def size(self) -> int: ...  # in documents

    def documents(self, named: Sequence[str]) -> Mapping[int, str]:
        """Names by ids, of all where none are named. Raises NotFound."""

    def chunks(self) -> int:
        """Of the documents that were told last."""

    def remove(self, ids: Sequence[int]) -> Mapping[str, int | None]: ...
    def remove_all(self) -> Mapping[str, int | None]: ...


class _OwnCollection:
    where = ""

    def __init__(self, library: Library, models: Models, collection: Collection):
        self.collection = collection.name
        self._library, self._models, self._chosen = library, models, collection
        self._found: dict[int, str] = {}

    def size(self) -> int:
        return self._library.catalog.collections.totals(self._chosen).documents

    def documents(self, named: Sequence[str]) -> dict[int, str]:
        catalog = self._library.catalog
        found = [find_document(catalog, one, self._chosen)[1] for one in named] or catalog.documents.all(self._chosen)
        self._found = {document.id: document.source for document in found}
        return self._found

    def chunks(self) -> int:
        listed = self._library.catalog.documents.listed(self._chosen)
        return sum(one.chunks for one in listed if one.document.id in self._found)

    def remove(self, ids: Sequence[int]) -> dict[str, int | None]:
        return vars(remove_documents(self._library, self._models, self._chosen, ids))

    def remove_all(self) -> dict[str, int | None]:
        return vars(remove_collection(self._library, self._models, self._chosen))


def _delete(source: DeletedFrom, named: Sequence[str], yes: bool, dry_run: bool, as_json: bool) -> None:
    """The whole collection where no documents are named."""
    told = {"collection": source.collection, "collection_deleted": not named}
    what = "" if named else f"collection {plain(source.collection)}: "
    if dry_run:
        _rehearse(source, source.documents(named), told, what, as_json)
        return
    if named:
        documents = source.documents(named)
        _confirm(_listed(documents, f"{plain(source.collection)}{source.where}"), yes)
        gone = source.remove(list(documents))
    else:
        _confirm(f"collection {plain(source.collection)}{source.where} with {count(source.size(), 'document')}", yes)
        gone = source.remove_all()
    if as_json:
        print_json({**told, **gone})
        return
    nouns = {"documents": "document", "chunks": "chunk", "kv_variants": "KV variant"}
    print(f"deleted {what}{', '.join(count(n, nouns[name]) for name, n in gone.items() if n is not None)}")


def _rehearse(
    source: DeletedFrom, documents: Mapping[int, str], told: dict[str, Any], what: str, as_json: bool
) -> None:
    chunks = source.chunks()
    if as_json:
        sources = list(documents.values())
        print_json(told | {"dry_run": True, "documents": len(documents), "chunks": chunks, "sources": sources})
        return
    for number, name in documents.items():
        print(f"would delete {number}  {plain(name)}")
    print(f"would delete {what}{count(len(documents), 'document')}, {count(chunks, 'chunk')}, and their KV")


def _listed(documents: Mapping[int, str], collection: str) -> str:
    lines = [f"  {number}  {plain(name)}" for number, name in islice(documents.items(), _SHOWN)]
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
