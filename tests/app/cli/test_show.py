from __future__ import annotations

from pathlib import Path

import pytest

from app.library import Library
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import fail, fill


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, "--data-dir", str(tmp_path / "data"), "--cache-dir", str(tmp_path / "cache"))


def test_a_document_with_its_chunks_and_kv(run: Run, library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    by_path, by_id = run("show", "/books/lamps.txt"), run("show", "2", "-c", "default")
    assert by_path == by_id
    lines = by_path.out.splitlines()
    assert lines[0] == "/books/lamps.txt"
    assert "state     ready" in lines
    assert "cut       prose (below its headings)" in lines
    assert "pages     1 page" in lines
    assert lines[-3].split() == ["3", "0", "0-25", "11", "page", "1", "1", "Part", "/", "One"]
    assert "Its keeper lived alone." not in by_path.out
    with_texts = run("show", "2", "--chunks").out
    assert "--- chunk 4\nIts keeper lived alone.\n    KV: disk, " in with_texts
    assert with_texts.count("right behind the system prompt") == 1
    assert "behind 2 chunks: #0, #1" in with_texts


@pytest.mark.slow
def test_as_json(run: Run, library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    shown = run("show", "/books/lamps.txt", "--json").json
    assert (shown["id"], shown["collection"], shown["pages"][0]["label"]) == (2, "default", "page")
    assert shown["way"] == "prose (below its headings)"
    third = shown["chunks"][2]
    assert (third["ordinal"], third["start"], "text" in third) == (2, 50, False)
    (kv,) = third["kv"]
    assert (kv["tier"], [one["ordinal"] for one in kv["context"]]) == ("disk", [0, 1])
    chunk = run("show", "--chunk", str(third["id"]), "--json").json
    assert [one["text"] for one in chunk["chunks"]] == ["Ships were warned by a bell."]


def test_a_failed_document_tells_why(run: Run, library: Library, models: Models) -> None:
    fail(library, fill(library, models), "/bad.pdf", "it is encrypted")
    out = run("show", "/bad.pdf").out
    assert "cut " not in out
    assert "state     failed" in out
    assert "reason    it is encrypted (1 try)" in out


def test_errors(run: Run, library: Library, models: Models) -> None:
    fill(library, models)
    told = {
        ("99",): "error: no document 99: `ragcache ls` shows those that there are\n",
        ("--chunk", "99"): "error: no chunk 99: `ragcache show DOCUMENT --chunks` shows those of a document\n",
        ("/books/rye.txt", "-c", "nope"): "error: no collection 'nope'; there are: default\n",
    }
    for arguments, error in told.items():
        ran = run("show", *arguments)
        assert (ran.code, ran.out, ran.err) == (1, "", error)
    assert run("show").code == run("show", "1", "--chunk", "1").code == run("show", "--chunk", "x").code == 2
