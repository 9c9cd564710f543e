"""What the catalog raises for its users."""

from __future__ import annotations

from ragcache.errors import RagcacheError


class CatalogError(RagcacheError):
    """A database that cannot be used, or something in it that is not there."""


class CollectionBusy(CatalogError):
    """Another process is working on the collection."""
