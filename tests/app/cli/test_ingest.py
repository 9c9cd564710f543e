"""`ragcache ingest` from outside, over files and folders as bad as they come."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.output import LATER
from app.library.catalog import open_catalog
from app.models.folders import resolve_embedder
from app.settings import Settings
from tests.app.cli import inside
from tests.app.ingestion.models import write_tiny_embedder
from tests.app.loaders.files import write_empty_pdf, write_pdf, write_scan

ROOT = Path(__file__).parents[3]
MAIN = "from app.cli import main; main()"
# What an ingest that finds nothing new can do without.
HEAVY = {"torch", "transformers", "sentence_transformers", "faiss", "llama_index", "tqdm"}
Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def tiny_embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_embedder(tmp_path_factory.mktemp("embedder"), resolve_embedder("bundled:minilm"))


@pytest.fixture
def ingest(tiny_folder: Path, tiny_embedder: Path, tmp_path: Path) -> Run:
    """The command in a process of its own; `before` is Python that runs first, `shell` what its shell runs."""

    def run(*arguments: str, before: str = "", shell: str = "", **settings: str) -> Ran:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("RAGCACHE_")}
        values = {"model": tiny_folder, "embedder": tiny_embedder, "data_dir": tmp_path / "data"}
        values |= {"cache_dir": tmp_path / "cache", "dtype": "float32", "device": "cpu"} | settings
        outside |= {f"RAGCACHE_{name.upper()}": str(value) for name, value in values.items()}
        command = [sys.executable, "-W", "error", "-c", before + MAIN, "ingest", *arguments]
        if shell:
            command = ["bash", "-c", f'{shell}; exec "$@"', "bash", *command]
        return subprocess.run(
            command, cwd=tmp_path, env=outside | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=250
        )

    return run


@pytest.fixture
def here(
    tiny_folder: Path,
    tiny_embedder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> inside.Run:
    """The command in this process."""
    values = {"model": tiny_folder, "embedder": tiny_embedder, "data_dir": tmp_path / "data"}
    values |= {"cache_dir": tmp_path / "cache"}
    for name, value in (values | {"dtype": "float32", "device": "cpu"}).items():  # type: ignore[operator]
        monkeypatch.setenv(f"RAGCACHE_{name.upper()}", str(value))
    monkeypatch.chdir(tmp_path)
    run = inside.make_run(capsys, monkeypatch)
    return lambda *arguments: run("ingest", *arguments)


def write_bad_files(docs: Path) -> dict[str, str]:
    """Files of which none is a document -> name: what is said of it."""
    write_pdf(docs / "locked.pdf", [["Secret."]], password="pw")
    write_scan(docs / "scan.pdf")
    write_empty_pdf(docs / "none.pdf")
    write_pdf(docs / "cut.pdf", [["words"]])
    (docs / "cut.pdf").write_bytes((docs / "cut.pdf").read_bytes()[:200])
    (docs / "zero.txt").write_bytes(b"")
    (docs / "binary.txt").write_bytes(bytes(range(256)) * 8)
    (docs / "loop.txt").symlink_to("loop.txt")
    return {
        "locked.pdf": "is encrypted",
        "scan.pdf": "has no text, only images",
        "none.pdf": "has no pages",
        "cut.pdf": "is damaged",
        "zero.txt": "is empty",
        "binary.txt": "looks binary",
        "loop.txt": "is a symbolic link that leads nowhere",
        "gone.txt": "does not exist",
    }


@pytest.mark.slow
def test_bad_files_are_told_and_the_others_are_in(ingest: Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    bad = write_bad_files(docs)
    (docs / "up").symlink_to(".")  # a folder inside itself
    odd = ["line\nbreak.txt", "naïve 名前 😀.txt", os.fsdecode(b"caf\xe9.txt"), "\x1b[31mred.txt"]
    for name in odd:
        (docs / name).write_text(f"The words of file {len(name)}.")
    (docs / "\x1b[2Jbad.txt").write_bytes(b"")
    ran = ingest(str(docs), str(docs / "gone.txt"), "--kv", "on-use")
    assert ran.returncode == 1
    summary = r"added 4, replaced 0, unchanged 0, pruned 0, failed 9 \(4 chunks, \d+ tokens, .* s\)\n"
    assert re.fullmatch(f"{summary}cut: 4 prose \\(where meaning turns\\)\n", ran.stdout)
    outlook, *lines = ran.stderr.splitlines()
    assert outlook.startswith("4 documents, about ") and outlook.endswith("(RAGCACHE_KV is on-use)")
    assert len(lines) == len(bad) + 1
    assert all(line.startswith("failed: ") and line.isprintable() for line in lines)
    for name, told in bad.items():
        assert sum(f"/{name} {told}" in line for line in lines) == 1, (name, told)
    shown = f"import atexit, sys; atexit.register(lambda: print({HEAVY} & {{*sys.modules}})); "
    again = ingest(str(docs), "--kv", "on-use", "--json", before=shown)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (1, "set()")  # the loop is still there
    told = json.loads(again.stdout.removesuffix("set()\n"))
    assert (told["unchanged"], told["skipped"], told["added"]) == (4, 7, 0)
    assert [Path(failure["source"]).name for failure in told["failed"]] == ["loop.txt"]
    with open_catalog(Settings(data_dir=tmp_path / "data")) as catalog:
        catalog.check_integrity()
        collection = catalog.collections.get("default")
        with catalog.alone(collection):
            second = ingest(str(docs))
    assert (second.returncode, second.stdout) == (LATER, "")
    assert second.stderr.startswith("error: another process is working on collection 'default': try again")
    assert second.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://root@127.0.0.1/books", "has the driver 'mysql': choose sqlite or postgresql"),
        ("postgresql://me:s3cret@127.0.0.1:1/books", "the server does not answer"),
    ],
)
def test_a_wrong_database_url_is_one_error(ingest: Run, tmp_path: Path, url: str, told: str) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    ran = ingest("a.txt", database_url=url)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert told in ran.stderr
    assert ran.stderr.startswith("error: ") and ran.stderr.count("\n") == 1
    assert "s3cret" not in ran.stderr


def test_nothing_there_is_an_error_and_makes_no_collection(ingest: Run, tmp_path: Path) -> None:
    ran = ingest("no\nwhere", "nothing.txt")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "error: there is nothing at no\\nwhere, nothing.txt: check the spelling\n"
    with open_catalog(Settings(data_dir=tmp_path / "data")) as catalog:
        assert catalog.collections.all() == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("semantic:granularity=word", "unknown granularity 'word': choose from sentence, paragraph, passage"),
        ("fixed:granularity=passage", "splitter 'fixed' has no setting 'granularity' (=passage): it takes none"),
        ("__main__.Parser", "'__main__.Parser' is no import path of a class: write package.module.Class"),
    ],
)
def test_a_wrong_splitter_is_one_error_and_makes_no_collection(
    here: inside.Run, tmp_path: Path, spec: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    by_flag = here("a.txt", "--splitter", spec)
    monkeypatch.setenv("RAGCACHE_SPLITTER", spec)
    for ran in (by_flag, here("a.txt")):
        assert (ran.code, ran.out, ran.err) == (1, "", f"error: {told}\n")
    with open_catalog(Settings(data_dir=tmp_path / "data")) as catalog:
        assert catalog.collections.all() == []


@pytest.mark.slow
def test_a_full_disk_stops_it_and_loses_nothing(ingest: Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(40):
        said = " ".join(os.urandom(8).hex() for _ in range(900))  # of which nothing can be compressed
        (docs / f"{number:02}.txt").write_text(f"Book {number}. {said}")
    ran = ingest("docs", "--kv", "on-use", shell="ulimit -f 700")  # no file grows beyond 700 KiB
    assert ran.returncode == 1
    assert ran.stdout.startswith("stopped: added ")
    outlook, error = ran.stderr.splitlines()
    assert outlook.startswith("40 documents, about ") and error.startswith("error: ")
    assert "catalog.sqlite" in error
    with open_catalog(Settings(data_dir=tmp_path / "data")) as catalog:
        catalog.check_integrity()
        before = catalog.documents.all(catalog.collections.get("default"))
    assert 0 < len(before) < 40
    again = ingest("docs", "--kv", "on-use", "--json")
    assert again.returncode == 0
    told = json.loads(again.stdout)
    assert (told["unchanged"], told["added"]) == (len(before), 40 - len(before))


@pytest.mark.slow
def test_ctrl_c_tells_what_is_in(ingest: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    interrupt = (
        "import signal, app.ingestion.writer as w; w.Writer.finish = lambda _: signal.raise_signal(signal.SIGINT); "
    )
    ran = ingest("a.txt", before=interrupt)
    assert ran.returncode == 130
    assert ran.stdout.startswith("interrupted: added 1, ")
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_large_text_takes_memory_by_its_size(ingest: Run, tmp_path: Path) -> None:
    """Beside what the libraries take, of which a torch for GPUs is several times as large."""
    line = "The fog came in over the harbour and the keeper lit the lamp, as on every night before. "
    for name, size in (("small.txt", 200_000), ("large.txt", 20_000_000)):
        (tmp_path / name).write_text(line * (size // len(line)))
    # Of this process the kernel's own mark: the usage of a child counts what it was forked from.
    peak = (
        "import atexit, re, pathlib, resource; "
        "mark = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]); "
        "atexit.register(lambda: print([mark(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss])); "
    )
    kilobytes = []
    for name in ("small.txt", "large.txt"):
        ran = ingest(name, "--dry-run", before=peak)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("would have added 1, ")
        kilobytes.append(json.loads(ran.stdout.splitlines()[-1]))
    assert not (tmp_path / "data").exists(), "a rehearsal makes no catalog"
    (small_parent, small_child), (parent, child) = kilobytes
    assert child < small_child + 150_000, kilobytes
    assert parent < small_parent + 150_000, kilobytes


@pytest.mark.slow
def test_pruning_has_two_strengths(here: inside.Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in "abc":
        (docs / f"{name}.txt").write_text(f"Words {name}.")
    assert here("docs", "--kv", "on-use").code == 0
    (docs / "a.txt").unlink()
    rehearsed = here("--dry-run", "--prune", "docs")
    assert "(0 chunks, 0 tokens, about 0 s)" in rehearsed.out  # whatever was ingested before
    assert rehearsed.out.startswith(
        f"would prune {docs / 'a.txt'}\nwould have added 0, replaced 0, unchanged 2, pruned 1"
    )
    assert "pruned 1," in here("--prune", "docs", "--kv", "on-use").out
    for name in "bc":
        (docs / f"{name}.txt").unlink()
    refused = here("--kv", "on-use", "--prune", "docs")
    assert (refused.code, refused.out) == (1, "")
    assert "error: none of the 2 files that were below " in refused.err
    assert "pruned 2," in here("--kv", "on-use", "--prune=all", "docs").out
    assert here("--prune=some", "docs").code == 2


def test_bad_options_are_2(here: inside.Run) -> None:
    assert here().code == 2
    assert here("x", "--workers", "0").code == 2
