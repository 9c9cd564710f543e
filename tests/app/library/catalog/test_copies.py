"""Copies of an SQLite catalog, made while others write to it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from app.errors import CatalogError
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.copies import (
    BACKUPS,
    REPLACED,
    back_up,
    beside,
    check_sound,
    drop_backups,
    existing,
    write_copy,
)
from app.library.catalog.database import Database, database_url
from app.settings import Settings
from ragcache.host import private_file
from tests.app.library.catalog.samples import document, make_collection
from tests.app.library.catalog.test_failures import public_folder, without_rights

__all__ = ["public_folder"]

ROOT = Path(__file__).parents[4]


def opened(folder: Path) -> Catalog:
    return open_catalog(Settings(data_dir=folder))


def database(folder: Path) -> Database:
    return Database(database_url(Settings(data_dir=folder)))


def copied(folder: Path, target: Path, force: bool = False) -> Path:
    back_up(database(folder), target, force)
    return target


def sources(folder: Path) -> set[str]:
    with opened(folder) as catalog:
        catalog.check_integrity()
        return set(catalog.documents.states(catalog.collections.get("default")))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def future(folder: Path, why: str) -> None:
    """A backup, before the clock is set back."""
    private_file(folder / "backups" / f"catalog-29990101T000000.000000Z-{why}.sqlite")


@contextmanager
def held_open(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the catalog open, until it gets a line."""
    holder = (
        "import sys; from pathlib import Path; from app.library.catalog import open_catalog;"
        "from app.settings import Settings;"
        "catalog = open_catalog(Settings(data_dir=Path(sys.argv[1]))); catalog.collections.all();"
        "print('open', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        yield other


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A catalog with the document `a`."""
    with opened(tmp_path / "data") as catalog:
        catalog.documents.replace(make_collection(catalog), *document(["one", "two"], "a"))
    return tmp_path / "data"


def test_a_copy_is_of_one_moment_while_others_write(data: Path, tmp_path: Path) -> None:
    begun, end = threading.Barrier(4), threading.Event()

    def write(name: str) -> None:
        with opened(data) as catalog:
            collection = catalog.collections.get("default")
            begun.wait()
            number = 0
            while not end.is_set():
                number += 1
                catalog.documents.replace(collection, *document([f"{name}{number}", "x" * 5000], name))
                catalog.documents.delete(collection, [1])

    writers = [threading.Thread(target=write, args=(name,)) for name in "bcd"]
    for writer in writers:
        writer.start()
    begun.wait()
    try:
        copies = [copied(data, tmp_path / f"copy{number}" / "catalog.sqlite") for number in range(5)]
    finally:
        end.set()
        for writer in writers:
            writer.join()
    for copy in copies:
        assert copy.stat().st_mode & 0o777 == 0o600
        assert names(copy.parent) == {"catalog.sqlite"}, "one file that can be carried away"
        assert sources(copy.parent) <= set("abcd")


def test_a_copy_replaces_nothing_unless_it_is_told_to(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"
    target.write_text("of somebody else")
    with pytest.raises(CatalogError, match="is there already: name another file, or replace it with --force"):
        copied(data, target)
    assert target.read_text() == "of somebody else"
    log = tmp_path / "copy.sqlite-wal"
    log.write_text("of somebody else")
    copied(data, target, force=True)
    assert not log.exists(), "SQLite would take it for a part of the copy"
    log.write_text("")
    target.unlink()
    with pytest.raises(CatalogError, match=r"copy\.sqlite-wal is there already"):
        copied(data, target)
    for force in (False, True):
        with pytest.raises(CatalogError, match="is the catalog itself"):
            copied(data, data / "catalog.sqlite", force)
    with pytest.raises(CatalogError, match="there is no catalog at"):
        copied(tmp_path / "nowhere", tmp_path / "new.sqlite")
    assert not (tmp_path / "nowhere").exists()
    assert sources(data) == {"a"}


def test_a_copy_replaces_no_catalog_that_is_in_use(data: Path, tmp_path: Path) -> None:
    """Whoever has it open would go on in a file that has no name, beside a log that is not its own."""
    other = tmp_path / "other"
    with opened(other) as catalog:
        make_collection(catalog)
    with held_open(other) as holder:
        with pytest.raises(CatalogError, match="is in use: stop the programs that have it open"):
            copied(data, other / "catalog.sqlite", force=True)
        holder.communicate("\n", timeout=60)
    assert sources(other) == set() and not any(".part" in name for name in names(other))
    copied(data, other / "catalog.sqlite", force=True)
    assert sources(other) == {"a"}


def test_what_a_killed_copy_has_left_goes_with_the_next(data: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copied(data, copies / "a.sqlite")
    left = (
        "a.sqlite.0123abcd.part", "a.sqlite.0123abcd.part-journal", "a.sqlite.4567cdef.part.lock",
        "b.sqlite.0123abcd.part", "a.sqlite.of me.part",
    )  # fmt: skip
    for name in left:
        (copies / name).write_bytes(b"torn")
    copied(data, copies / "a.sqlite", force=True)
    assert names(copies) == {"a.sqlite", *left[3:]}


def test_a_copy_that_is_being_written_stays(data: Path) -> None:
    """Two may make one at the same time, and SQLite locks no file that it has not opened yet, or has closed."""
    code = (
        "import sys; from pathlib import Path; from app.library.catalog.copies import beside\n"
        "with beside(Path(sys.argv[1])) as part: part.touch(); print(part.name, flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data / "a.sqlite")],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        part = data / writer.stdout.readline().strip()
        copied(data, data / "a.sqlite")
        assert part.is_file()
        writer.kill()
    assert part.is_file()
    copied(data, data / "a.sqlite", force=True)
    assert names(data) == {"catalog.sqlite", "locks", "a.sqlite"}


def test_what_another_user_has_left_hinders_no_copy(public_folder: Path) -> None:
    target = public_folder / "a.sqlite"
    left = [target.with_name(f"a.sqlite.{name}") for name in ("0123abcd.part", "4567cdef.part", "4567cdef.part.lock")]
    for one in left:
        one.touch(mode=0)
    public_folder.chmod(0o1777)  # where nobody can delete what is another's
    with without_rights(), beside(target) as part:
        part.write_text("whole")
        part.rename(target)
    assert target.read_text() == "whole"
    if os.geteuid() == 0:
        assert names(public_folder) == {"a.sqlite", *(one.name for one in left)}


def test_a_backup_that_cannot_go_keeps_no_other(tmp_path: Path) -> None:
    stuck, old, newest = (
        tmp_path / BACKUPS / f"catalog-{year}0101T000000.000000Z-{REPLACED}.sqlite" for year in (2001, 2002, 2003)
    )
    stuck.mkdir(parents=True)
    for backup in (old, newest):
        backup.touch()
    drop_backups(tmp_path / "catalog.sqlite", REPLACED, 1, newest)
    assert names(tmp_path / BACKUPS) == {stuck.name, newest.name}


def test_a_copy_that_is_gone_is_not_sound(tmp_path: Path) -> None:
    """SQLite would make an empty one, and that would take the place of the last backup."""
    gone = tmp_path / "a.sqlite.0123abcd.part"
    with pytest.raises(CatalogError, match="cannot be opened"):
        check_sound(gone, tmp_path / "catalog.sqlite")
    assert not gone.exists()


def test_only_the_file_is_told_to_sqlite_by_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 warns of all else."""

    def connect(database: str, **options: object) -> str:
        assert options["timeout"] == 0
        return database

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert str(existing(tmp_path / "a", timeout=0)) == f"file://{tmp_path}/a?mode=rw"


def test_a_copy_replaces_no_part_of_its_catalog(data: Path) -> None:
    with opened(data) as catalog:
        catalog.documents.replace(catalog.collections.get("default"), *document(["three"], "b"))
        for name in ("catalog.sqlite-wal", "catalog.sqlite-shm", "catalog.sqlite-journal"):
            with pytest.raises(CatalogError, match=f"{name} is the catalog itself, or a part of it"):
                copied(data, data / name, force=True)
    assert sources(data) == {"a", "b"}


def test_a_copy_of_a_damaged_catalog_is_none(data: Path, tmp_path: Path) -> None:
    path = data / "catalog.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[: 5 * 4096] + b"\xff" * 4096 * 3 + whole[8 * 4096 :])
    with pytest.raises(CatalogError, match="damaged"):
        copied(data, tmp_path / "copies" / "copy.sqlite")
    assert names(tmp_path / "copies") == set()


def test_a_file_where_nothing_can_be_written_is_copied_too(public_folder: Path) -> None:
    """SQLite wants to make its log beside a file that has had one."""
    source, target = public_folder / "closed" / "old.sqlite", public_folder / "open" / "copy.sqlite"
    for folder in (source.parent, target.parent):
        folder.mkdir()
    with closing(sqlite3.connect(source)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE songs AS SELECT 7 AS number")
        made.commit()
    source.chmod(0o444)
    source.parent.chmod(0o555)
    target.parent.chmod(0o777)
    with without_rights():
        write_copy(source, target)
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("SELECT number FROM songs").fetchall() == [(7,)]
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert names(source.parent) == {"old.sqlite"}
