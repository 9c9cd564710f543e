"""What a killed process has left undone of KV that is to go, or is to come again: the next ingest does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cachecare.warming import warm
from app.ingestion.capture import KvCapture, KvRemoval
from app.library import Library
from app.models import Models
from app.settings import Settings
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.test_order import NOTES, chunk_of, contexts, notes, standings

__all__ = ["notes"]


class Killed(BaseException):
    """No code catches it, as none runs any more in a process that is killed."""


@pytest.mark.parametrize(
    ("place", "name"), [(KvRemoval, "drop"), (KvRemoval, "finish"), (KvCapture, "renew"), (KvRemoval, "settle")]
)
def test_the_next_ingest_does_what_a_killed_one_left(
    ingest: Run,
    library: Library,
    models: Models,
    settings: Settings,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: type,
    name: str,
) -> None:
    """Of a changed document: its old KV, what was computed over that, and the KV of those that have lost theirs."""

    def killed(*_: object) -> None:
        raise Killed

    ingest(kv="eager")
    collection, stood = library.catalog.collections.get("default"), standings(library)
    changed = max(stood, key=lambda one: sum(one in other.behind for other in stood.values()))
    old = chunk_of(library, changed)
    Path(library.catalog.documents.get(changed).source).write_text("Something else entirely, about bread.")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(place, name, killed)
        ingest(kv="eager")
    assert chunk_of(library, changed) != old
    assert library.catalog.orphans.of(collection)[0] == {old}
    assert ingest(kv="eager").unchanged == NOTES
    assert old not in contexts(settings) and not models.store.seeing({old})
    assert library.catalog.orphans.of(collection) == (set(), set())
    *_, done = warm(library, models, collection)
    assert done.computed == 0


def test_the_next_ingest_does_what_a_killed_removal_left(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    collection, stood = library.catalog.collections.get("default"), standings(library)
    gone = next(one for one in stood if sum(one in other.behind for other in stood.values()) > 2)
    chunk, source = chunk_of(library, gone), library.catalog.documents.get(gone).source
    library.catalog.documents.delete(collection, [gone])
    Path(source).unlink()
    assert chunk in contexts(settings)
    ingest(kv="eager")
    assert chunk not in contexts(settings) and not models.store.seeing({chunk})
