from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.output import LATER
from app.library import Library
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import files, fill

ROOT = Path(__file__).parents[3]


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    return ["--data-dir", str(tmp_path / "data"), "--cache-dir", str(tmp_path / "cache")]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny_folder: Path,
    flags: list[str],
) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"RAGCACHE_MODEL={tiny_folder}\nRAGCACHE_DTYPE=float32\n")
    return make_run(capsys, monkeypatch, *flags)


def test_documents_and_then_the_collection(run: Run, library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    ran = run("rm", "1", "/books/rye.txt", "-c", "default", "--yes")
    assert (ran.code, ran.out) == (0, "deleted 1 document, 2 chunks, 2 KV variants\n")
    ran = run("rm", "-c", "default", "--all", "--yes", "--json")
    told = {"collection": "default", "documents": 1, "chunks": 3, "kv_variants": 3, "collection_deleted": True}
    assert ran.json == told
    assert library.catalog.collections.all() == []
    assert len(files(library)) == 1, "the System segment's"


def test_nothing_goes_unless_all_is_well(run: Run, library: Library, models: Models) -> None:
    collection = fill(library, models)
    ran = run("rm", "1", "/nowhere.txt", "-c", "default", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: no document '/nowhere.txt' in collection 'default': `ragcache ls")
    for wrong in (["1", "-c", "default"], ["-c", "default"], ["1", "--all", "-c", "default"], ["1", "--yes"]):
        assert run("rm", *wrong).code == 2, wrong
    assert "add --yes" in run("rm", "1", "-c", "default").err
    with library.catalog.alone(collection):
        ran = run("rm", "--all", "-c", "default", "--yes")
    assert (ran.code, ran.err.count("\n")) == (LATER, 1)
    assert ran.err.startswith("error: another process is working on collection 'default'")
    assert library.catalog.collections.totals(collection).documents == 2


def test_a_dry_run_names_what_would_go(run: Run, library: Library, models: Models) -> None:
    collection = fill(library, models, kv=True)
    before = files(library), library.catalog.documents.all(collection)
    ran = run("rm", "1", "/books/rye.txt", "-c", "default", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "would delete 1  /books/rye.txt\nwould delete 1 document, 2 chunks, and their KV\n"
    told = run("rm", "--all", "-c", "default", "--dry-run", "--json").json
    assert (told["documents"], told["chunks"], told["collection_deleted"], told["dry_run"]) == (2, 5, True, True)
    assert len(told["sources"]) == 2
    assert (files(library), library.catalog.documents.all(collection)) == before


@pytest.mark.parametrize("answer", ["n", "y"])
def test_it_asks_on_a_terminal_and_needs_no_torch(
    library: Library, models: Models, tmp_path: Path, flags: list[str], answer: str
) -> None:
    collection = fill(library, models)
    loaded = "import atexit, sys; atexit.register(lambda: print({'torch', 'transformers'} & set(sys.modules))); "
    command = [sys.executable, "-W", "error", "-c", f"{loaded}from app.cli import main; main()"]
    terminal, user = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    ran = subprocess.run(
        [*command, "rm", "1", "-c", "default", *flags], stdin=user, capture_output=True, text=True, timeout=100,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(terminal)
    os.close(user)
    assert "Delete 1 document of default\n  1  /books/rye.txt\n? [y/N] " in ran.stderr
    done = "deleted 1 document, 2 chunks, 0 KV variants\n" if answer == "y" else ""
    assert (ran.returncode, ran.stdout) == (0 if done else 1, f"{done}set()\n")
    assert library.catalog.collections.totals(collection).documents == (1 if done else 2)
