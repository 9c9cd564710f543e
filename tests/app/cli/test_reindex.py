from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.output import LATER
from app.library import Library
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import fill


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, "--data-dir", str(tmp_path / "data"))


def test_it_tells_what_it_has_done(run: Run, library: Library, models: Models) -> None:
    fill(library, models)
    ran = run("reindex", "-c", "default")
    assert (ran.code, ran.out) == (0, "default: 5 chunks embedded by bundled:minilm, 5 chunks indexed\n")
    assert "embedding" not in ran.err, "no progress where nobody looks"
    again = {"collection": "default", "embedder": "bundled:minilm", "chunks": 5, "embedded": 0}
    assert run("reindex", "--json").json == again


def test_errors(run: Run, library: Library, models: Models) -> None:
    collection = fill(library, models)
    assert run("reindex", "-c", "nope").err == "error: no collection 'nope'; there are: default\n"
    assert run("reindex", "--nope").code == 2
    with library.catalog.alone(collection):
        ran = run("reindex")
    assert (ran.code, ran.out) == (LATER, "")
    assert ran.err.startswith("error: another process is working on collection 'default'")
