"""The composition root: the parts of the settings, put together. Nothing else builds them, and none is loaded yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.library import Library
from app.library.catalog import catalog_to_look_at, open_catalog
from app.models import Models
from app.settings import Settings


def open_library(settings: Settings) -> tuple[Library, Models]:
    """To be closed by `close`."""
    models = Models(settings)
    return Library(settings, open_catalog(settings), models), models


def close(library: Library, models: Models) -> None:
    """What is asked of them afterwards fails."""
    try:
        models.close()
    finally:
        library.catalog.close()


@contextmanager
def opened(settings: Settings, *, looking: bool = False) -> Iterator[tuple[Library, Models]]:
    """Until the end of the block. `looking`: for what changes nothing; where there is no catalog it sees an empty one,
    and none is made.
    """
    catalogs = catalog_to_look_at(settings) if looking else open_catalog(settings)
    with catalogs as catalog, Models(settings) as models:
        yield Library(settings, catalog, models), models
