"""A data folder is one catalog's: what the clients of its server have sent is safe from any other one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.findings import examine
from app.cli.serve_check import check_data_folder
from app.compose import opened
from app.errors import CatalogError
from app.ingestion.queue import IngestQueue
from app.library.catalog import open_catalog
from app.library.folder_claim import MARKER, claim, claimed_by_another
from app.library.originals import Originals
from app.settings import Settings, environment, load_settings

HASH = "ab" * 32
ROOT = str(Path(__file__).parents[3])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return of(tmp_path)


def of(folder: Path, **changes: Any) -> Settings:
    values = {"data_dir": folder / "data", "cache_dir": folder / "cache"} | changes
    return load_settings(None, **values)


def sent(settings: Settings, file: Path) -> Path:
    """What a server has taken, and has not made a document of yet."""
    file.write_bytes(b"%PDF")
    with opened(settings) as (library, models):
        queue = IngestQueue(library, models)
        queue.start()
        queue.close()
        Originals(library).keep(file, HASH)
        return Originals(library).path(HASH)


def test_another_catalog_does_not_start_and_deletes_nothing(settings: Settings, tmp_path: Path) -> None:
    kept = sent(settings, tmp_path / "a.pdf")
    other = of(tmp_path, database_url=f"sqlite:///{tmp_path}/other.sqlite")
    with opened(other) as (library, models):
        queue = IngestQueue(library, models)
        with pytest.raises(CatalogError, match=r"files of the catalog catalog\.sqlite, and .*other\.sqlite would"):
            queue.start()
        Originals(library).drop([HASH])  # as the command line does with what it deletes
    assert kept.exists()
    claim(settings)


def test_a_server_tells_it_in_one_line_before_it_starts(settings: Settings, tmp_path: Path) -> None:
    open_catalog(settings).close()
    claim(settings)
    other = of(tmp_path, database_url=f"sqlite:///{tmp_path}/other.sqlite")
    own = environment(data_dir=str(other.data_dir), database_url=f"sqlite:///{tmp_path}/other.sqlite")
    command = [sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", "0"]
    ran = subprocess.run(command, cwd=tmp_path, env=own | {"PYTHONPATH": ROOT}, capture_output=True, text=True)
    assert ran.returncode != 0 and len(ran.stderr.splitlines()) == 1
    assert "has the files of the catalog catalog.sqlite" in ran.stderr
    (finding,) = check_data_folder(other)
    assert not finding.ok and "has the files of the catalog catalog.sqlite" in finding.detail
    (finding,) = check_data_folder(settings)
    assert finding.ok


def test_a_catalog_may_be_moved_with_its_folder_or_alone(settings: Settings, tmp_path: Path) -> None:
    open_catalog(settings).close()
    claim(settings)
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = of(tmp_path, data_dir=tmp_path / "moved")
    claim(moved)
    (tmp_path / "moved" / "catalog.sqlite").rename(tmp_path / "alone.sqlite")
    alone = of(tmp_path, data_dir=tmp_path / "moved", database_url=f"sqlite:///{tmp_path}/alone.sqlite")
    claim(alone)
    assert (tmp_path / "moved" / MARKER).read_text() == str(tmp_path / "alone.sqlite")
    open_catalog(moved).close()
    assert claimed_by_another(moved) == str(tmp_path / "alone.sqlite"), "a new one has come to where it was"


def test_a_file_by_another_name_is_the_same(settings: Settings, tmp_path: Path) -> None:
    open_catalog(settings).close()
    claim(settings)
    (tmp_path / "link.sqlite").hardlink_to(tmp_path / "data" / "catalog.sqlite")
    claim(of(tmp_path, database_url=f"sqlite:///{tmp_path}/link.sqlite"))


def test_a_database_is_known_by_its_address_and_name_alone(settings: Settings, tmp_path: Path) -> None:
    claim(of(tmp_path, database_url="postgresql://ann:secret@host/first"))
    claim(of(tmp_path, database_url="postgresql://ben:other@host/first"))
    for url in ("postgresql://ann:secret@host/second", f"sqlite:///{tmp_path}/other.sqlite"):
        with pytest.raises(CatalogError, match=r"delete .*owner if it is the same") as raised:
            claim(of(tmp_path, database_url=url))
        assert "secret" not in str(raised.value)
    (tmp_path / "data" / MARKER).unlink()
    claim(settings)


@pytest.mark.parametrize("damaged", [b"\0" * 16, b"catalog\0.sqlite"])
def test_a_damaged_marker_is_one_error_and_nothing_is_deleted(
    settings: Settings, tmp_path: Path, damaged: bytes
) -> None:
    kept = sent(settings, tmp_path / "a.pdf")
    (settings.data_dir / MARKER).write_bytes(damaged)
    with opened(settings) as (library, _):
        for do in (lambda: claim(settings), lambda: Originals(library).drop([HASH])):
            with pytest.raises(CatalogError, match=r"owner, which says whose .* is damaged: delete it"):
                do()
    (finding,) = examine(settings, [check_data_folder])
    assert not finding.ok and "is damaged" in finding.detail
    assert kept.exists()


def test_a_folder_that_cannot_be_written_is_one_error(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(CatalogError, match=r"cannot write in the data folder .*RAGCACHE_DATA_DIR"):
        claim(settings)
