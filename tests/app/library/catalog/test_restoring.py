"""A copy put in the place of an SQLite catalog, and killed in between."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import URL

from app.errors import CatalogError
from app.library.catalog.copies import back_up
from app.library.catalog.database import Database, database_url
from app.library.catalog.restoration import Restored, keep_file, restore
from app.library.catalog.schema import SCRIPTS, inspect_schema, upgrade
from app.settings import Settings
from tests.app.library.catalog.samples import document
from tests.app.library.catalog.test_copies import copied, data, database, future, held_open, names, opened, sources

__all__ = ["data"]
ROOT = Path(__file__).parents[4]


def put_back(folder: Path, source: Path, keep: int = 1) -> Restored:
    return restore(database(folder), source, keep)


def at(path: Path) -> Database:
    return Database(URL.create("sqlite", database=str(path)))


def newer(scripts: Path) -> Path:
    """Scripts with one that is still to come."""
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    newest = inspect_schema(at(scripts / "none")).newest
    (scripts / "versions" / "9999_next.py").write_text(
        f"from alembic import op\nrevision = '9999'\ndown_revision = {newest!r}\n"
        "branch_labels = depends_on = None\n"
        "def upgrade():\n    op.execute('DELETE FROM retirements')\n"
    )
    return scripts


@pytest.fixture
def changed(data: Path, tmp_path: Path) -> Path:
    """A copy of it, made before `a` was deleted and `b` and `c` came."""
    backup = copied(data, tmp_path / "copies" / "backup.sqlite")
    with opened(data) as catalog:
        collection = catalog.collections.get("default")
        catalog.documents.delete(collection, [1])
        catalog.documents.replace(collection, *document(["three", "four"], "b"))
        catalog.documents.replace(collection, *document(["five"], "c"))
    return backup


def test_where_a_file_can_have_one_name_only_it_is_copied(tmp_path: Path) -> None:
    path, kept = tmp_path / "catalog.sqlite", tmp_path / "backups" / "kept.sqlite"
    path.write_bytes(b"x" * 3_000_000)
    kept.parent.mkdir()
    with path.open("rb") as file:
        path.unlink()  # so that it cannot have a second name
        keep_file(file.fileno(), path, kept)
    assert kept.read_bytes() == b"x" * 3_000_000
    assert kept.stat().st_mode & 0o777 == 0o600


def test_what_was_there_is_kept(data: Path, changed: Path) -> None:
    before = changed.read_bytes()
    future(data, "replaced")
    restored = put_back(data, changed)
    assert sources(data) == {"a"}
    assert restored.kept is not None and restored.kept.parent == data / "backups"
    assert names(data) == {"catalog.sqlite", "backups", "locks"}
    again = put_back(data, restored.kept)
    assert sources(data) == {"b", "c"}
    assert names(data / "backups") == {str(again.kept and again.kept.name)}, "a bound, which is one here"
    assert changed.read_bytes() == before
    assert names(changed.parent) == {changed.name}


def test_a_catalog_that_is_gone_or_damaged_is_restored(data: Path, changed: Path) -> None:
    path = data / "catalog.sqlite"
    foreign = data / "catalog.sqlite-wal"
    with opened(data) as catalog:
        catalog.documents.replace(catalog.collections.get("default"), *document(["six"], "d"))
        foreign_log = foreign.read_bytes()
    assert foreign_log
    for spoil in (
        path.unlink, lambda: path.write_bytes(b"\xff" * 9000), lambda: path.write_bytes(path.read_bytes()[:4096]),
    ):  # fmt: skip
        spoil()
        foreign.write_bytes(foreign_log)
        (data / "catalog.sqlite-shm").write_bytes(b"\xff" * 32768)
        put_back(data, changed, keep=9)
        assert not foreign.exists()
        assert sources(data) == {"a"}


def test_a_catalog_that_is_in_use_stays(data: Path, changed: Path) -> None:
    with held_open(data) as other:
        with pytest.raises(CatalogError, match="is in use: stop the programs that have it open"):
            put_back(data, changed)
        (data / "catalog.sqlite").write_bytes(b"\xff" * 9000)  # damaged while somebody has it open
        with pytest.raises(CatalogError, match="is in use"):
            put_back(data, changed)
        other.communicate("\n", timeout=60)
    put_back(data, changed)
    with opened(data), pytest.raises(CatalogError, match="is in use"):
        put_back(data, changed)
    assert sources(data) == {"a"}


def test_only_a_sound_catalog_is_put_in_place(data: Path, changed: Path, tmp_path: Path) -> None:
    text, foreign, torn, newer = (tmp_path / name for name in ("text", "foreign", "torn", "newer"))
    text.write_text("once upon a time " * 1000)
    with closing(sqlite3.connect(foreign)) as other:
        other.execute("CREATE TABLE songs (id INTEGER)")
    whole = changed.read_bytes()
    torn.write_bytes(whole[: 5 * 4096] + b"\xff" * 4096 * 3 + whole[8 * 4096 :])
    shutil.copyfile(changed, newer)
    with closing(sqlite3.connect(newer)) as other, other:
        other.execute("UPDATE ragcache_schema SET version_num = '9999'")
    empty = tmp_path / "empty"
    empty.touch()
    for source, said in (
        (text, "no SQLite database"), (foreign, "belongs to another program"), (torn, "damaged"),
        (newer, "written by a newer version"), (empty, "is no catalog of ragcache"), (tmp_path / "gone", "no file"),
        (tmp_path, "no file"), (data / "catalog.sqlite", "is the catalog itself"),
    ):  # fmt: skip
        with pytest.raises(CatalogError, match=said) as failed:
            put_back(data, source)
        assert str(source) in str(failed.value)
        assert not any(".part" in name for name in names(data))
        assert sources(data) == {"b", "c"}


def test_a_run_of_that_time_runs_no_more(data: Path, tmp_path: Path) -> None:
    with opened(data) as catalog:
        catalog.runs.start(catalog.collections.get("default"))
        backup = copied(data, tmp_path / "backup.sqlite")
    put_back(data, backup)
    with opened(data) as catalog:
        assert [run.state for run in catalog.runs.newest(catalog.collections.get("default"))] == ["interrupted"]


def test_a_key_that_was_revoked_since_stays_revoked(data: Path, tmp_path: Path) -> None:
    with opened(data) as catalog:
        (lost, token), (kept, other) = (catalog.keys.create(name, ["read"]) for name in "ab")
        backup = copied(data, tmp_path / "backup.sqlite")
        revoked = catalog.keys.revoke(lost.id)
        _, newest = catalog.keys.create("c", ["read"])
    put_back(data, backup)
    with opened(data) as catalog:
        assert [one.id for one in catalog.keys.all()] == [lost.id, kept.id]
        assert catalog.keys.get(lost.id).revoked == revoked.revoked
        assert [bool(catalog.keys.verify(one)) for one in (token, other, newest)] == [False, True, False]


def test_jobs_that_waited_then_have_failed(data: Path, tmp_path: Path) -> None:
    """What was sent for them may be gone."""
    with opened(data) as catalog:
        collection = catalog.collections.get("default")
        done, running, waiting = (catalog.jobs.create(collection, {"file": name}).id for name in "abc")
        for job_id in (done, running):
            job = catalog.jobs.claim("p", 600)
            assert job is not None and job.id == job_id
            assert job_id == running or catalog.jobs.finish(job)
        backup = copied(data, tmp_path / "backup.sqlite")
    put_back(data, backup)
    with opened(data) as catalog:
        found = [catalog.jobs.get(job_id, None) for job_id in (done, running, waiting)]
        assert [job.state for job in found] == ["done", "failed", "failed"]
        assert {job.error for job in found[1:]} == {str(found[1].error)} and "copy" in str(found[1].error)
        assert all(job.finished and not job.lease for job in found)
        assert catalog.jobs.claim("p", 600) is None
        assert catalog.jobs.retry(running, None).request == {"file": "b"}


def test_a_backup_of_an_upgrade_is_such_a_copy(data: Path, tmp_path: Path) -> None:
    path, scripts = database(data), newer(tmp_path / "newer")
    future(data, "0001")
    backup = upgrade(path, 1, scripts)
    path.close()
    assert backup is not None and backup.stat().st_mode & 0o777 == 0o600
    put_back(data, backup)
    assert sources(data) == {"a"}


def test_a_link_to_a_catalog_stays_one(data: Path, changed: Path, tmp_path: Path) -> None:
    """What belongs to the catalog lies beside the file, also where several links lead to it."""
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "catalog.sqlite").symlink_to(data / "catalog.sqlite")
    with opened(linked):
        assert names(linked) == {"catalog.sqlite"}
    restored = put_back(linked, changed)
    assert restored.kept is not None and restored.kept.parent == data / "backups" and not restored.kept.is_symlink()
    assert (linked / "catalog.sqlite").is_symlink() and names(linked) == {"catalog.sqlite"}
    assert sources(data) == {"a"}
    url = SecretStr(f"sqlite:///{linked}/catalog.sqlite")
    assert database_url(Settings(database_url=url)) == database_url(Settings(data_dir=data))


def test_each_catalog_has_backups_of_each_kind_of_its_own(data: Path, changed: Path, tmp_path: Path) -> None:
    """Names that a pattern of files would take for each other's, in one folder."""
    catalogs = [at(data / name) for name in ("a.sqlite", "a", "a-b.sqlite", "[ab].sqlite", "a.db", ".sqlite")]
    scripts = newer(tmp_path / "newer")
    for catalog in catalogs:
        back_up(at(data / "catalog.sqlite"), catalog.path or data)
    for _ in range(2):
        replaced = [restore(catalog, changed, 1).kept for catalog in catalogs]
        upgraded = [upgrade(catalog, 1, scripts) for catalog in catalogs]
        for catalog in catalogs:
            catalog.close()
        assert {path.name for path in (*replaced, *upgraded) if path} == names(data / "backups")
    assert len(names(data / "backups")) == 2 * len(catalogs)


def test_backups_that_were_named_otherwise_go_in_their_turn(data: Path, changed: Path) -> None:
    """Those of a catalog without the ending had it all the same, unless they are another's."""
    catalog = at(data / "kb.db")
    back_up(at(data / "catalog.sqlite"), catalog.path or data)
    restored = restore(catalog, changed, 1).kept
    assert restored is not None
    older = restored.with_name(restored.name.replace("-2", "-1", 1) + ".sqlite")
    older.write_bytes(restored.read_bytes())
    other = at(data / "kb.db.sqlite")
    back_up(at(data / "catalog.sqlite"), other.path or data)
    restore(catalog, changed, 1)
    assert older.exists()
    (data / "kb.db.sqlite").unlink()
    newest = restore(catalog, changed, 1).kept
    assert newest is not None
    assert names(data / "backups") == {newest.name}


def test_postgresql_has_its_own_tools(tmp_path: Path) -> None:
    server = Database(database_url(Settings(database_url=SecretStr("postgresql://me:s3cret@host:5433/books"))))
    with pytest.raises(CatalogError, match=r"pg_dump --format=custom --file=FILE books") as failed:
        back_up(server, tmp_path / "copy")
    assert "s3cret" not in str(failed.value)
    with pytest.raises(CatalogError, match="pg_restore --clean --if-exists --dbname=books FILE"):
        restore(server, tmp_path / "copy", 1)


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_one_of_them_whole(data: Path, changed: Path, tmp_path: Path) -> None:
    with opened(data) as catalog:  # as a killed process leaves it: the newest document is in the log alone
        catalog.documents.replace(catalog.collections.get("default"), *document(["six"], "d"))
        shutil.copytree(data, tmp_path / "killed")
    script = [sys.executable, str(Path(__file__).with_name("killed_restore.py"))]
    ran = subprocess.run(
        [*script, str(tmp_path / "killed"), str(changed), str(tmp_path / "work")],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [one for one in found if one not in (["b", "c", "d"], ["a"])] == []
    assert found == sorted(found, reverse=True), "from some step on it is the new one"
    assert found[0] == ["b", "c", "d"] and found[-1] == ["a"] and len(found) > 20
