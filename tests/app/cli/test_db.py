"""`ragcache db` from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def db(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", "from app.cli import main; main()", "db", *arguments]
    outside = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, timeout=100)


def test_upgrade_makes_a_catalog_current(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = db("current", "--json", "--data-dir", str(data), folder=tmp_path)
    assert (before.returncode, before.stderr) == (1, "")
    found = json.loads(before.stdout)
    assert (found["database"], found["revision"], found["current"]) == (str(data / "catalog.sqlite"), None, False)
    assert not data.exists()
    made = json.loads(db("upgrade", "--json", "--data-dir", str(data), folder=tmp_path).stdout)
    assert (made["revision"], made["current"], made["backup"]) == (found["newest"], True, None)
    after = db("current", "--data-dir", str(data), folder=tmp_path)
    assert (after.returncode, after.stdout) == (
        0,
        f"{data / 'catalog.sqlite'}: schema {found['newest']}, the newest\n",
    )


def test_an_error_shows_no_password(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RAGCACHE_DATABASE_URL=postgresql://user:s3cret@127.0.0.1:1/books\n")
    ran = db("upgrade", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    told, error = ran.stderr.splitlines()
    assert told.endswith(f".env in {tmp_path} sets RAGCACHE_DATABASE_URL")
    assert error.startswith("error: cannot use the catalog postgresql://127.0.0.1:1/books: the server does not")
    assert "s3cret" not in ran.stderr


@pytest.mark.slow
def test_a_copy_is_made_and_put_back(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.sqlite"
    flags = ["--data-dir", str(data)]
    assert "there is no catalog at" in db("backup", str(copy), *flags, folder=tmp_path).stderr
    db("upgrade", *flags, folder=tmp_path)
    made = db("backup", str(copy), *flags, folder=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith(f"{data / 'catalog.sqlite'} is copied to {copy} (")
    again = db("backup", str(copy), *flags, folder=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1) and "--force" in again.stderr
    told = json.loads(db("backup", str(copy), "--force", "--json", *flags, folder=tmp_path).stdout)
    assert told["bytes"] == copy.stat().st_size
    (data / "catalog.sqlite").write_bytes(b"\xff" * 9000)
    advice = db("upgrade", *flags, folder=tmp_path)
    assert advice.returncode == 1
    back = db("restore", str(copy), *flags, folder=tmp_path)
    assert (back.returncode, back.stderr) == (0, "")
    assert f"is restored from {copy}; its indexes are made anew" in back.stdout
    assert "what was there is kept as" in back.stdout
    assert db("current", *flags, folder=tmp_path).returncode == 0


def test_postgresql_is_copied_by_its_own_tools(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RAGCACHE_DATABASE_URL=postgresql://user:s3cret@127.0.0.1:1/books\n")
    for command, tool in (("backup", "pg_dump --format=custom"), ("restore", "pg_restore --clean")):
        ran = db(command, "copy", folder=tmp_path)
        # The first line says that .env names the database.
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 2)
        assert tool in ran.stderr and "s3cret" not in ran.stderr
