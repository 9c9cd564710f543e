"""A document or a chunk with all that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.catalog import Collection, Document, StoredChunk
from app.catalog.filters import LARGEST_ID
from app.errors import NotFound
from app.library import Library
from app.loaders.base import Page
from app.maintenance.kv import StoredVariant, variants_of
from app.maintenance.selection import find_document


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
