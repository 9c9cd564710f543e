"""`ingest`, `ls` and `rm` with `--server`: files are sent, and all is shown as of this machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

import httpx2
import pytest

from app import Settings
from app.samples import read_samples
from tests.app.cli.inside import Ran, make_run
from tests.app.cli.inside import Run as RunCommand
from tests.app.server.serving import served

MOST = 100_000  # bytes of a file that the server takes


@pytest.fixture(scope="module")
def client(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("shelves")
    with served(
        Settings(model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", serve_upload_bytes=MOST)
    ) as client:
        yield client


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: httpx2.Client
) -> RunCommand:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGCACHE_SERVER", str(client.base_url))
    return make_run(capsys, monkeypatch)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "lighthouse.md").write_text(read_samples()["lighthouse.md"])
    (folder / "deep" / "tab & 100%?.txt").write_text("The tab is full of signs that a URL gives a meaning.")
    (folder / "picture.png").write_bytes(b"no loader reads this")
    return folder


def test_what_is_sent_is_listed_asked_and_deleted(run: RunCommand, notes: Path) -> None:
    ran = run("ingest", str(notes), "-c", "shelf")
    assert (ran.code, ran.err) == (0, "")
    assert re.match(
        r"added 2, replaced 0, unchanged 0, pruned 0, failed 0 \([\d,]+ chunks, [\d,]+ tokens, KV ", ran.out
    )
    (notes / "lighthouse.md").write_text("The lighthouse is no more.")
    again = run("ingest", str(notes), "-c", "shelf", "--glob", "*.md", "--json")
    assert {name: again.json[name] for name in ("added", "replaced", "unchanged")} == {
        "added": 0,
        "replaced": 1,
        "unchanged": 0,
    }
    assert "\nshelf " in run("ls").out
    listed = run("ls", "-c", "shelf", "--json").json["documents"]
    assert {one["source"] for one in listed} == {"lighthouse.md", "tab & 100%?.txt"}
    assert all(one["chunks"] > 0 and one["state"] == "ready" for one in listed)
    assert "tab & 100%?.txt" in run("ls", "-c", "shelf").out
    asked = run("ask", "What of the tab?", "-c", "shelf", "--max-tokens", "4")
    assert "tab & 100%?.txt" in asked.out
    assert "would delete 1 document, 1 chunk" in run("rm", "tab & 100%?.txt", "-c", "shelf", "--dry-run").out
    assert run("rm", "tab & 100%?.txt", "-c", "shelf", "-y").out.startswith("deleted 1 document, 1 chunk, ")
    assert run("rm", "tab & 100%?.txt", "-c", "shelf", "-y").err.startswith("error: no document 'tab & 100%?.txt' in")
    gone = run("rm", "--all", "-c", "shelf", "-y", "--json").json
    assert (gone["documents"], gone["collection_deleted"]) == (1, True)
    assert run("ls", "-c", "shelf").code == 1


def test_the_same_letters_are_one_name(run: RunCommand, tmp_path: Path) -> None:
    """As macOS and other systems write them."""
    forms = [normalize(form, "Café.txt") for form in ("NFC", "NFD")]
    for number, name in enumerate(forms):
        (folder := tmp_path / str(number)).mkdir()
        (folder / name).write_text("The café is at the harbour.")
    ran = run("ingest", str(tmp_path / "0"), str(tmp_path / "1"), "-c", "forms")
    assert ran.out.startswith("added 1, ") and "has the name of another file" in ran.err
    assert run("rm", forms[1], "-c", "forms", "-y").out.startswith("deleted 1 document, ")


def test_what_cannot_be_ingested_is_told_with_its_reason_and_the_rest_goes_in(run: RunCommand, notes: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing of one")
    (notes / "deep" / "lighthouse.md").write_text("Another file of the same name.")
    (notes / "long.txt").write_text("word " * MOST)
    os.mkfifo(pipe := notes / "pipe")
    ran = run("ingest", str(notes), str(pipe), str(notes / "missing.md"), str(notes / "picture.png"), "-c", "mixed")
    assert ran.code == 1
    assert ran.out.startswith("added 2, ")
    failed = dict(re.findall(r"^failed: (\S+) (.+)$", ran.err, re.MULTILINE))
    assert {Path(name).name for name in failed} == {
        "broken.pdf", "lighthouse.md", "long.txt", "pipe", "missing.md", "picture.png"
    }  # fmt: skip
    told = {Path(name).name: reason for name, reason in failed.items()}
    assert "is no file" in told["pipe"]
    assert "cannot be read: No such file" in told["missing.md"]
    assert "has the name of another file" in told["lighthouse.md"]
    assert f"longer than the {MOST} bytes" in told["long.txt"]
    listed = run("ls", "-c", "mixed", "--failed", "--json").json["documents"]
    assert [one["source"] for one in listed] == ["broken.pdf"]
    assert "broken.pdf" in run("ls", "-c", "mixed", "--failed").out


def test_names_that_are_no_utf_8_do_not_become_one(run: RunCommand, tmp_path: Path) -> None:
    (folder := tmp_path / "old").mkdir()
    names = [b"caf\xe8.md", b"caf\xe9.md", "café.md".encode()]
    for name in names:
        (folder / os.fsdecode(name)).write_bytes(b"What is served in " + name)
    ran = run("ingest", str(folder), "-c", "old")
    assert (ran.code, ran.out[:8]) == (1, "added 1,")
    assert ran.err.count("has a name that is no UTF-8") == 2
    assert [one["source"] for one in run("ls", "-c", "old", "--json").json["documents"]] == ["café.md"]
    refused = run("rm", "--all", "-c", os.fsdecode(b"caf\xe8"), "-y")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "is no UTF-8" in refused.err


@pytest.mark.parametrize(
    "arguments",
    ["ingest . --prune", "ingest . --kv off", "ingest . --dry-run", "ls --data-dir x", "rm -c a 1 -y --cache-dir x"],
)
def test_what_means_nothing_to_a_server_is_refused(run: RunCommand, arguments: str) -> None:
    ran = run(*arguments.split())
    assert (ran.code, ran.out) == (1, "")
    assert re.fullmatch(r"error: --[a-z-]+ means nothing to the server \S+, which has its own settings: .*\n", ran.err)


def test_nothing_is_deleted_unasked(run: RunCommand, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("ingest", str(notes), "-c", "kept").code == 0
    assert run("rm", "--all", "-c", "kept").code == 2, "nobody can be asked"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: "n\n", raising=False)
    refused: Ran = run("rm", "--all", "-c", "kept")
    assert refused.code == 1
    assert "Delete collection kept on http://127.0.0.1:" in refused.err
    assert run("ls", "-c", "kept", "--json").json["documents"]
