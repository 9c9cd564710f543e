"""From what a user names a document by to the document."""

from __future__ import annotations

import os
from pathlib import Path

from app.catalog import Catalog, Collection, Document
from app.catalog.filters import LARGEST_ID
from app.errors import MaintenanceError, NotFound


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
