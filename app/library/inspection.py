"""What there is: the collections with their numbers; all that belongs to a document or a chunk that a user names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import MaintenanceError, NotFound
from app.library import Library
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, CollectionTotals, Document, StoredChunk
from app.library.catalog.tables import LARGEST_ID
from app.library.identities import Identity, recorded_identities, remembered_identity
from app.library.kv import Shelf, StoredVariant, families_of, has_kv, variants_of
from app.loaders.base import Page
from app.models import Models
from ragcache.store.folder import CacheFolder, engine_name
from splitter.documents import way


@dataclass(frozen=True)
class Summary:
    """A collection with its numbers. KV is what lies in the cache folder now; collections may share chunks."""

    collection: Collection
    totals: CollectionTotals
    kv_variants: int  # of the model that the collection was last ingested with
    kv_bytes: int
    other_kv_bytes: int  # of the other models and System segments that this catalog knows of


def summaries(library: Library, models: Models) -> list[Summary]:
    """All collections, by name. None of the cache's files is opened."""
    collections = library.catalog.collections
    known, found = recorded_identities(library), collections.all()
    if any(one.engine_fingerprint is None for one in found) and has_kv(library.settings):
        # Its KV can only come from answers.
        settled = remembered_identity(models)
        known |= set() if settled is None else {settled}
    else:
        settled = None
    shelf = Shelf(CacheFolder(library.settings.kv_folder).items({engine_name(one.fingerprint) for one in known}))
    return [_summary(library, one, known, settled, shelf) for one in found]


def _summary(
    library: Library, collection: Collection, known: set[Identity], settled: Identity | None, shelf: Shelf
) -> Summary:
    fingerprint, system = collection.engine_fingerprint, collection.system_hash
    own = Identity(fingerprint, system) if fingerprint is not None and system is not None else settled
    hashes = library.catalog.chunks.hashes(collection) if shelf.entries else set()
    kv = shelf.of(families_of(own, hashes) if own else ())
    other = shelf.of(family for one in known - {own} for family in families_of(one, hashes))
    totals = library.catalog.collections.totals(collection)
    return Summary(collection, totals, kv.entries, kv.nbytes, other.nbytes)


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
    way: str = ""  # how it was cut, where its splitter is known and one that chooses

    def variants(self, chunk: StoredChunk) -> list[StoredVariant]:
        return self.kv.get(chunk.token_hash, [])


def show_document(
    library: Library, named: str, collection_name: str | None = None, models: Models | None = None
) -> Shown:
    """`models`: whose KV is told of a collection in which only answers have computed any."""
    catalog = library.catalog
    chosen = None if collection_name is None else catalog.collections.get(collection_name)
    collection, document = find_document(catalog, named, chosen)
    return _shown(library, collection, document, None, models)


def show_chunk(library: Library, chunk_id: int, models: Models | None = None) -> Shown:
    """With its document. Raises NotFound when there is no such chunk."""
    found = library.catalog.chunks.found([chunk_id]) if 0 < chunk_id <= LARGEST_ID else []
    if not found:
        raise NotFound(f"no chunk {chunk_id}: `ragcache show DOCUMENT --chunks` shows those of a document")
    document = found[0].document
    if (collection := library.catalog.collections.with_id(document.collection_id)) is None:
        raise NotFound(f"the collection of chunk {chunk_id} has just been deleted")
    return _shown(library, collection, document, chunk_id, models)


def _shown(
    library: Library, collection: Collection, document: Document, chunk_id: int | None, models: Models | None
) -> Shown:
    layout = library.catalog.documents.layout(document.id)
    chunks = library.catalog.chunks.of_document(document.id)
    chosen = tuple(chunk for chunk in chunks if chunk_id in (None, chunk.id))
    ordinals = {chunk.token_hash: chunk.ordinal for chunk in reversed(chunks)}
    kv = variants_of(library, collection, [chunk.token_hash for chunk in chosen], models)
    headed = any(chunk.heading for chunk in chunks)
    known = chunks and chunks[0].id > library.catalog.collections.cut_since(collection)  # all were written at once
    cut = way(collection.splitter, document.kind, headed) if known else ""
    return Shown(collection, document, layout.pages, len(layout.text), chosen, ordinals, kv, cut)


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
