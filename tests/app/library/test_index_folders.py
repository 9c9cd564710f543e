"""Indexes of collections that are gone: a process that was killed, or another machine, has left them."""

from __future__ import annotations

import pytest

from app.cachecare import prune
from app.ingestion.queue import IngestQueue
from app.library import INDEXES, Library, indexes
from app.library.catalog.collections import Collections
from app.library.catalog.records import Collection, Removed
from app.library.folder_claim import MARKER, claim
from app.library.removal import remove_collection
from app.models import Models
from tests.app.library.shelves import fill


class Killed(BaseException):
    """No code catches it, as none runs any more in a process that is killed."""


def indexed(library: Library, models: Models, name: str = "default") -> Collection:
    collection = fill(library, models, name)
    indexes.rebuild(library, collection)
    return collection


def folders(library: Library) -> set[str]:
    return {path.name for path in (library.settings.data_dir / INDEXES).iterdir()}


def test_a_removal_that_is_killed_leaves_no_index(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, delete = indexed(library, models), Collections.delete

    def killed(self: Collections, collection: Collection) -> Removed:
        delete(self, collection)
        raise Killed

    monkeypatch.setattr(Collections, "delete", killed)
    with pytest.raises(Killed):
        remove_collection(library, models, collection)
    assert library.catalog.collections.all() == [] and folders(library) == set()


@pytest.mark.parametrize("by", ["a server's start", "prune"])
def test_indexes_that_no_collection_has_go(library: Library, models: Models, by: str) -> None:
    """As a collection leaves them here that another machine has deleted."""
    gone, stays = (indexed(library, models, name) for name in ("gone", "stays"))
    library.catalog.collections.delete(gone)
    (library.settings.data_dir / INDEXES / "of somebody").mkdir()
    claim(library.settings)
    if by == "prune":
        prune(library, models)
    else:
        queue = IngestQueue(library, models)
        queue.start()
        queue.close()
    assert folders(library) == {stays.uid, "of somebody"}


@pytest.mark.parametrize("owner", ["", "another.sqlite"])
def test_none_goes_where_another_catalog_may_have_some(library: Library, models: Models, owner: str) -> None:
    gone = indexed(library, models)
    library.catalog.collections.delete(gone)
    if owner:
        (library.settings.data_dir / owner).touch()
        (library.settings.data_dir / MARKER).write_text(owner)
    library.sweep_indexes()
    assert folders(library) == {gone.uid}


def test_an_index_that_another_process_just_makes_stays(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a collection that is made while it is looked which there are."""
    gone, made = indexed(library, models), list[Collection]()
    library.catalog.collections.delete(gone)
    claim(library.settings)
    every = Collections.all

    def slow(self: Collections) -> list[Collection]:
        found = every(self)
        monkeypatch.undo()
        made.append(indexed(library, models, "new"))
        return found

    monkeypatch.setattr(Collections, "all", slow)
    library.sweep_indexes()
    assert folders(library) == {made[0].uid}
