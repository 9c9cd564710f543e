from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.output import plain, table, width
from app.client.amounts import count, size
from app.errors import ORDINARY
from app.library import Library
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import fail, fill, make_collection, put


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, "--data-dir", str(tmp_path / "data"))


def test_nothing_yet(run: Run) -> None:
    assert run("ls").out == "no collections yet: `ragcache ingest PATH` makes one\n"
    assert run("ls", "--json").json == {"collections": []}


def test_collections_and_documents(run: Run, library: Library, models: Models) -> None:
    collection = fill(library, models)
    fail(library, collection, "/books/\nbad\x1b[31m.pdf", "it is encrypted\nso it cannot be read")
    make_collection(library, "日本の本")
    title, first, second = run("ls").out.splitlines()
    assert title.split() == ["collection", "documents", "failed", "chunks", "tokens", "size", "KV", "embedder"]
    assert first.split()[:4] == ["default", "3", "1", "5"]
    assert width(first[: first.index("old-embedder")]) == width(second[: second.index("old-embedder")])
    lines = run("ls", "-c", "default").out.splitlines()
    assert lines[1].split() == ["3", "failed", "0", "0", r"/books/\nbad\x1b[31m.pdf"]
    assert lines[2].split()[1:3] == ["ready", "3"]
    assert lines[-1] == "3 documents, 1 of them failed: `ragcache ls -c default --failed` tells why"
    assert run("ls", "--failed").out.splitlines()[1].endswith(r"it is encrypted\nso it cannot be read")
    totals = run("ls", "--json").json["collections"][0]
    assert (totals["name"], totals["documents"], totals["chunks"], totals["kv_bytes"]) == ("default", 3, 5, 0)
    documents = run("ls", "-c", "default", "--json").json["documents"]
    assert documents[0]["source"] == "/books/\nbad\x1b[31m.pdf"
    assert [one["chunks"] for one in documents] == [0, 3, 2]
    assert [one["id"] for one in run("ls", "--failed", "--json").json["documents"]] == [3]


def test_sources_that_cannot_be_written_as_utf8(run: Run, library: Library, models: Models) -> None:
    collection = make_collection(library)
    put(library, models, collection, "/odd/\udcff\x00.txt", ["Text."])
    assert r"/odd/\udcff\x00.txt" in run("ls", "-c", "default").out
    assert run("ls", "-c", "default", "--json").json["documents"][0]["source"] == "/odd/\udcff\x00.txt"


def test_errors_are_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("ls", "-c", "nope")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: no collection 'nope'; there are: none yet\n")
    assert run("ls", "--nope").code == 2
    monkeypatch.setenv("RAGCACHE_DATABASE_URL", "postgresql://user:s3cret@127.0.0.1:1/books")
    ran = run("ls", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: cannot use the catalog postgresql://127.0.0.1:1/books: the server does not")
    monkeypatch.delenv("RAGCACHE_DATABASE_URL")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGCACHE_DATA_DIR", str(tmp_path / "file" / "data"))
    ran = make_run(capsys, monkeypatch)("ls")  # the folder is that of the environment
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: cannot use the catalog ")
    assert ran.err.count("\n") == 1


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_a_table_has_one_line_for_each_row_and_straight_columns(rows: list[tuple[str, str]]) -> None:
    lines = table(("first", "second"), [(left, "|" + right) for left, right in rows]).split("\n")
    assert len(lines) == 1 + len(rows)
    begins = {width(line[: line.index("  |") + 2]) for line in lines[1:]}
    assert len(begins) <= 1
    assert all(sign.isprintable() or sign in ORDINARY for line in lines for sign in line)


def test_numbers_for_people() -> None:
    assert [size(number) for number in (0, 1023, 1024, 1 << 20, 3 << 39)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.5 TiB",
    ]
    assert (count(1, "chunk"), count(2000, "entry", "entries")) == ("1 chunk", "2,000 entries")
    assert (width("日本"), width("é"), plain("a\tb\u202e")) == (4, 1, r"a\tb\u202e")
    assert width(plain("می\u200cخواهم")) == width("میخواهم")
