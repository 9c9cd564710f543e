"""Nothing of what an ingest leaves on the disk can be read by other users, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.compose import opened
from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.library.catalog import open_catalog
from app.library.catalog.database import Database, database_url
from app.library.catalog.schema import _back_up
from app.settings import Settings


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable(*folders: Path) -> list[tuple[Path, str]]:
    """What others may look at; an empty lock file tells nothing, and stands in a folder that they cannot enter."""
    found = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in found if path.suffix != ".lock"]
    return [(path, oct(mode)) for path, mode in modes if mode & 0o077]


def test_catalog_indexes_and_kv_are_for_their_owner_alone(open_umask: None, settings: Settings, docs: Path) -> None:
    (docs / "a.txt").write_text("The lighthouse was lit in 1884. " * 40)
    with opened(settings) as (library, models):
        result = Ingest(library, models, library.collection_or_new("default"), IngestOptions(workers=1)).run([docs])
        assert result.added == 1 and result.kv_variants
        (entry, *_) = settings.cache_dir.rglob("*.kv")
        (key,) = [one.key for one in models.store.variants(entry.parent.name) if one.key.digest == entry.stem][:1]
        models.store.pin(key)
        names = {path.name for path in settings.data_dir.iterdir()}
        assert {"catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"} <= names
        assert list(settings.data_dir.rglob("*.faiss"))
        assert readable(settings.data_dir, settings.cache_dir) == []
        entry.write_bytes(b"damaged")
        assert models.store.verify()
    assert list(settings.cache_dir.rglob("*.txt"))  # in quarantine, with its reason
    assert readable(settings.data_dir, settings.cache_dir) == []


def test_folders_that_are_shared_stay_shared(open_umask: None, settings: Settings, docs: Path) -> None:
    (docs / "a.txt").write_text("The lighthouse was lit in 1884.")
    settings.data_dir.mkdir(mode=0o775)
    with opened(settings) as (library, models):
        Ingest(library, models, library.collection_or_new("default"), IngestOptions(workers=1, kv="on-use")).run([docs])
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o775
    assert [path for path, _ in readable(settings.data_dir)] == [settings.data_dir]


def test_backups_are_for_their_owner_alone(open_umask: None, settings: Settings) -> None:
    open_catalog(settings).close()
    database = Database(database_url(settings))
    assert _back_up(database, "revision", keep=1).is_file()
    database.close()
    assert readable(settings.data_dir) == []
