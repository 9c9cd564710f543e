"""`ragcache db` from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
    assert ran.stderr.startswith("error: cannot use the catalog postgresql://127.0.0.1:1/books: the server does not")
    assert ran.stderr.count("\n") == 1
    assert "s3cret" not in ran.stderr
