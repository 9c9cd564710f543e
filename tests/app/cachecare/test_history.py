"""What is written down behind answers, beside what they had of the cache."""

from __future__ import annotations

from app.cachecare.history import CacheRecorder
from app.library import Library
from app.models import Models


def test_when_a_key_was_used_is_written_down_behind_it(library: Library, models: Models) -> None:
    key, token = library.catalog.keys.create("anna", ["read"])
    library.catalog.keys.verify(token)
    CacheRecorder(library.catalog, models).write()
    assert library.catalog.keys.get(key.id).last_used is not None
