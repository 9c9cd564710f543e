"""What there is: collections, and the documents of one."""

from __future__ import annotations

from dataclasses import dataclass

from app.catalog import Catalog, Collection, Totals
from app.catalog.listings import Listed, list_documents


@dataclass(frozen=True)
class Summary:
    """A collection with its numbers."""

    collection: Collection
    totals: Totals


def summaries(catalog: Catalog) -> list[Summary]:
    """All collections, by name."""
    return [Summary(one, catalog.collections.totals(one)) for one in catalog.collections.all()]


def listed(catalog: Catalog, name: str, failed: bool = False) -> list[Listed]:
    """The documents of a collection by source; of all of them or those that could not be read."""
    collection = catalog.collections.get(name)
    return list_documents(catalog.database, collection, "failed" if failed else None)
