"""What a bucket could not be told goes once more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from app.compose import opened
from app.errors import MaintenanceError
from app.library.removal import remove_documents
from ragcache.errors import StoreError
from ragcache.store.remote.journal import Journal, Kind, RemoteTask
from tests.app.library.shelves import fill, make_settings

TEXT, OVER = "The bell rang at noon.", "Nobody heard it."


def test_what_a_bucket_could_not_be_told_of_texts_is_told_by_the_next_removal(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was computed over them has gone here by then, so nothing here shows that it is left there."""
    settings = make_settings(tiny_folder, tmp_path, remote=f"file://{tmp_path}/bucket", ram_bytes=0)
    with opened(settings) as (library, models):
        collection = fill(library, models, books={"/a.txt": [TEXT, OVER]}, kv=True)
        ids, add, told = [one.id for one in library.catalog.documents.all(collection)], Journal.add, set[str]()

        def fail(journal: Journal, tasks: Iterable[RemoteTask]) -> bool:
            wanted = list(tasks)
            if any(task.kind is Kind.TRACES for task in wanted):
                raise StoreError("the disk is full")
            return add(journal, wanted)

        def watch(journal: Journal, tasks: Iterable[RemoteTask]) -> bool:
            wanted = list(tasks)
            told.update(task.told[0] for task in wanted if task.kind is Kind.TRACES)
            return add(journal, wanted)

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "add", fail)
            with pytest.raises(MaintenanceError, match="the disk is full"):
                remove_documents(library, models, collection, ids)
        gone = {models.template.chunk(text).hash for text in (TEXT, OVER)}
        assert library.catalog.orphans.of(collection)[0] == gone
        monkeypatch.setattr(Journal, "add", watch)
        remove_documents(library, models, collection, [])
        assert told == gone
        assert library.catalog.orphans.of(collection) == (set(), set())
