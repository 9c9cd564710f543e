"""What is written down behind answers, beside what they had of the cache."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.cachecare.history import CacheRecorder
from app.library import Library
from app.library.catalog.serving_records import CacheTally
from app.models import Models

LIMIT_S = 20.0


def test_when_a_key_was_used_is_written_down_behind_it(library: Library, models: Models) -> None:
    key, token = library.catalog.keys.create("anna", ["read"])
    library.catalog.keys.verify(token)
    CacheRecorder(library.catalog, models).write()
    assert library.catalog.keys.get(key.id).last_used is not None


def test_who_has_written_finds_what_another_was_about_to(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks for the history while the thread that writes it down is at it."""
    recorder, history = CacheRecorder(library.catalog, models), library.catalog.cache_history
    begun, go_on, written = threading.Event(), threading.Event(), list[Any]()

    def slowly(*told: Any) -> None:
        begun.set()
        assert go_on.wait(LIMIT_S)
        written.append(told)

    monkeypatch.setattr(history, "add", slowly)
    recorder._count(1, 0, CacheTally(answers=1))
    first, second = (threading.Thread(target=recorder.write, daemon=True) for _ in range(2))
    first.start()
    assert begun.wait(LIMIT_S)
    second.start()
    second.join(0.3)
    assert second.is_alive() and not written
    go_on.set()
    for one in (first, second):
        one.join(LIMIT_S)
        assert not one.is_alive()
    assert len(written) == 1
