"""From what a user names a document or a chunk by to all that belongs to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import MaintenanceError, NotFound
from app.library import Library
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, Document, StoredChunk
from app.library.catalog.tables import LARGEST_ID
from app.library.kv import StoredVariant, variants_of
from app.loaders.base import Page


@dataclass(frozen=True)
class Shown:
    """A document, its chunks in order (or the one that was asked for), and their KV."""

    collection: Collection
    document: Document
    pages: tuple[Page, ...]
    length: int  # characters of its text
    chunks: tuple[StoredChunk, ...]
    hashes: Mapping[str, int]  # the ordinal of the first chunk of the document with this token hash
    kv: Mapping[str, list[StoredVariant]] = field(default_factory=dict)  # by token hash

    def variants(self, chunk: StoredChunk) -> list[StoredVariant]:
        return self.kv.get(chunk.token_hash, [])


def show_document(library: Library, named: str, collection_name: str | None = None) -> Shown:
    catalog = library.catalog
    chosen = None if collection_name is None else catalog.collections.get(collection_name)
    collection, document = find_document(catalog, named, chosen)
    return _shown(library, collection, document, None)


def show_chunk(library: Library, chunk_id: int) -> Shown:
    """With its document. Raises NotFound when there is no such chunk."""
    found = library.catalog.chunks.found([chunk_id]) if 0 < chunk_id <= LARGEST_ID else []
    if not found:
        raise NotFound(f"no chunk {chunk_id}: `ragcache show DOCUMENT --chunks` shows those of a document")
    document = found[0].document
    collection = next(one for one in library.catalog.collections.all() if one.id == document.collection_id)
    return _shown(library, collection, document, chunk_id)


def _shown(library: Library, collection: Collection, document: Document, chunk_id: int | None) -> Shown:
    layout = library.catalog.documents.layout(document.id)
    chunks = library.catalog.chunks.of_document(document.id)
    chosen = tuple(chunk for chunk in chunks if chunk_id in (None, chunk.id))
    ordinals = {chunk.token_hash: chunk.ordinal for chunk in reversed(chunks)}
    kv = variants_of(library, collection, [chunk.token_hash for chunk in chosen])
    return Shown(collection, document, layout.pages, len(layout.text), chosen, ordinals, kv)


def find_document(catalog: Catalog, named: str, collection: Collection | None = None) -> tuple[Collection, Document]:
    """By id or source, in one collection or in all. A file whose name is a number is given as ./NUMBER.

    Raises NotFound when there is none, and MaintenanceError when there are several and no collection to choose by.
    """
    collections = [collection] if collection else catalog.collections.all()
    if named.isascii() and named.isdecimal():
        found = _by_id(catalog, named, collections)
    else:
        sources = dict.fromkeys((named, os.path.normpath(Path(named).absolute()), os.path.realpath(named)))
        found = [pair for one in collections for pair in _by_source(catalog, one, sources)]
    if not found:
        where = f" in collection {collection.name!r}" if collection else ""
        command = "`ragcache ls -c COLLECTION`"
        raise NotFound(f"no document {named!r}{where}: {command} shows those that there are, with their ids")
    if len(found) > 1:
        names = ", ".join(repr(one.name) for one, _ in found)
        raise MaintenanceError(f"{named!r} is in the collections {names}: choose one with -c")
    return found[0]


def _by_id(catalog: Catalog, digits: str, collections: list[Collection]) -> list[tuple[Collection, Document]]:
    # Python reads no number of thousands of digits.
    if len(digits) > len(str(LARGEST_ID)) or int(digits) > LARGEST_ID:
        return []
    document = catalog.documents.get(int(digits))
    return [(one, document) for one in collections if one.id == document.collection_id]


def _by_source(catalog: Catalog, collection: Collection, sources: dict[str, None]) -> list[tuple[Collection, Document]]:
    for source in sources:
        document = catalog.documents.find(collection, source)
        if document is not None:
            return [(collection, document)]
    return []
