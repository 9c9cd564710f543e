"""Reading processes: whatever a file does to one of them, the others and the ingest go on."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from app.errors import LoadError
from app.ingestion.readers import Backlog, Readers
from app.ingestion.survey import Pending
from app.ingestion.worker import FileStamp, Job, Outcome, ReadFile, Same, Unread, may_pass, read
from app.library.catalog.records import FileState
from app.loaders.base import ParseLimits, SourceFile
from app.loaders.soundness import reading
from tests.app.loaders.files import write_mixed_folder


class Bomb(ParseLimits):
    """Limits that go off as the other process unpickles them, as a hostile file may in the middle of a library."""

    def __init__(self, call: Callable[..., Any], *arguments: Any):
        object.__setattr__(self, "_fuse", (call, arguments))

    def __reduce__(self) -> Any:
        return vars(self)["_fuse"]


def pending(*paths: Path) -> list[Pending]:
    return [Pending(str(path), path.stat().st_size if path.exists() else 0, None) for path in paths]


def outcomes(files: list[Pending], workers: int = 2, **options: Any) -> list[Outcome]:
    with Readers(workers, **options) as readers:
        found = list(readers.read(files))
    assert [file for file, _ in found] == files
    return [outcome for _, outcome in found]


def test_files_come_in_order_and_as_they_are_read_here(tmp_path: Path) -> None:
    paths = sorted(write_mixed_folder(tmp_path).iterdir())
    found = outcomes(pending(*paths), workers=3)
    assert found == [read(Job(str(path), None, ParseLimits())) for path in paths]
    assert all(isinstance(one, ReadFile) for one in found)


def test_no_document_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers start in whatever folder the user is in."""
    for name in ("json", "pickle", "app"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()")
    (tmp_path / "a.txt").write_text("A text.")
    monkeypatch.chdir(tmp_path)
    (outcome,) = outcomes(pending(tmp_path / "a.txt"), workers=1)
    assert isinstance(outcome, ReadFile)
    assert not (tmp_path / "ran").exists()


def test_a_crash_costs_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    files = pending(*[tmp_path / "a.txt"] * 4)
    with Readers(1) as readers:
        readers._limits = Bomb(os.abort)
        ((_, crashed),) = readers.read(files[:1])
        readers._limits = ParseLimits()
        rest = [outcome for _, outcome in readers.read(files[1:])]
    assert isinstance(crashed, Unread)
    assert crashed.reason.startswith("crashes the program that reads it (exit status -6)")
    assert crashed.stamp is None
    assert all(isinstance(one, ReadFile) for one in rest)


def test_an_exception_in_a_reading_process_is_no_want_of_memory(tmp_path: Path) -> None:
    """Python takes a while to end behind it, when its pipes are closed already."""
    (tmp_path / "a.txt").write_text("Words.")
    bomb = Bomb(exec, "import sys, time; sys.excepthook = lambda *_: time.sleep(0.3); raise KeyError")
    (ended,) = outcomes(pending(tmp_path / "a.txt"), limits=bomb)
    assert isinstance(ended, Unread) and ended.stamp is None
    assert ended.reason.startswith("crashes the program that reads it (exit status 1)")


# So many bytes more than the reading process has when the job arrives.
WITH_LITTLE_MEMORY = """(
    __import__("resource").setrlimit(
        __import__("resource").RLIMIT_AS,
        (int(open("/proc/self/statm").read().split()[0]) * __import__("os").sysconf("SC_PAGE_SIZE") + 40_000_000,) * 2,
    ),
    __import__("app.loaders.base", fromlist=["ParseLimits"]).ParseLimits(),
)[1]"""


@pytest.mark.parametrize("nbytes", [20_000_000, 80_000_000], ids=["to parse it", "to read it"])
def test_want_of_memory_is_not_the_contents_fault(tmp_path: Path, nbytes: int) -> None:
    (tmp_path / "a.txt").write_text("Words are. " * (nbytes // 11))
    (short,) = outcomes(pending(tmp_path / "a.txt"), limits=Bomb(eval, WITH_LITTLE_MEMORY))
    assert isinstance(short, Unread)
    assert re.match("needs more memory to be read than the [0-9,.]+ [GM]iB that it may take: split it", short.reason)
    assert short.stamp is None


def test_what_libraries_make_of_want_of_memory_is_not_the_contents_fault(tmp_path: Path) -> None:
    """libxml2 tells of an "unknown error" then."""
    with ZipFile(tmp_path / "a.epub", "w", ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", f"<container>{'<a><b/></a>' * 2_000_000}</container>")
    (short,) = outcomes(pending(tmp_path / "a.epub"), workers=1, limits=ParseLimits(max_memory=300_000_000))
    assert isinstance(short, Unread) and short.stamp is None
    assert short.reason.startswith("needs more memory to be read than the 286.1 MiB that it may take: split it")


@pytest.mark.slow
def test_what_is_told_near_the_limit_of_memory_has_no_stamp(tmp_path: Path) -> None:
    """The process that reads the next file has its memory whole."""
    (tmp_path / "a.xlsx").write_bytes(b"PK\3\4" + b"\0" * 500)
    much = '[__import__("app.loaders.base", fromlist=["ParseLimits"]).ParseLimits(), bytearray(1_610_000_000)][0]'
    with Readers(1, ParseLimits(max_memory=2_000_000_000)) as readers:
        found = []
        for limits in (readers._limits, Bomb(eval, much), readers._limits):
            readers._limits = limits
            found += [outcome for _, outcome in readers.read(pending(tmp_path / "a.xlsx"))]
    damaged, short, again = found
    assert isinstance(damaged, Unread) and damaged.stamp is not None and again == damaged
    assert isinstance(short, Unread) and short.stamp is None
    assert re.search("is damaged .*; or reading it needs more memory than the 1.9 GiB that it may take", short.reason)


def test_a_reader_that_the_system_kills_is_not_the_contents_fault(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    bomb = Bomb(eval, "__import__('os').kill(__import__('os').getpid(), 9)")
    (killed,) = outcomes(pending(tmp_path / "a.txt"), limits=bomb)
    assert isinstance(killed, Unread) and killed.stamp is None
    assert killed.reason.startswith("needs more memory to be read than there is")


@pytest.mark.parametrize(
    ("cause", "passing"),
    [
        (MemoryError(), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.ENOENT, "No such file or directory", "default.pptx"), True),
        (OSError(errno.EACCES, "Permission denied"), True),
        (OSError("cannot identify image file"), False),
        (OSError(errno.EINVAL, "Invalid argument"), False),
        (ValueError("no such page"), False),
    ],
)
def test_what_a_loader_failed_of_says_whether_it_may_pass(tmp_path: Path, cause: Exception, passing: bool) -> None:
    with pytest.raises(LoadError) as failed, reading(SourceFile(tmp_path, b"", ParseLimits()), "a PDF", MemoryError):
        raise cause
    assert may_pass(failed.value) is passing


def test_a_fault_of_a_loader_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    monkeypatch.setattr("app.ingestion.worker.parse", lambda *_: [].pop())
    outcome = read(Job(str(tmp_path / "a.txt"), None, ParseLimits()))
    assert isinstance(outcome, Unread) and outcome.stamp is None
    assert "by a fault of this program (IndexError: pop from empty list)" in outcome.reason


def test_a_file_that_takes_for_ever_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    (slow,) = outcomes(pending(tmp_path / "a.txt"), limits=Bomb(time.sleep, 1000), patience=0.2)
    assert isinstance(slow, Unread)
    assert "takes more than 0 seconds" in slow.reason
    assert slow.stamp is None


def test_leaving_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    with Readers(2) as readers:

        def give() -> Iterator[Pending]:
            yield from pending(tmp_path / "a.txt")
            readers._limits = Bomb(time.sleep, 1000)  # for all that follow
            yield from pending(*[tmp_path / "a.txt"] * 7)

        assert isinstance(next(readers.read(give()))[1], ReadFile)
        children = [process._child for process in readers._all]
    assert children
    assert all(child.returncode is not None for child in children)


def test_what_the_loaders_say_is_heard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes("é".encode() * 100 + b"\xff" + "é".encode() * 100)
    with caplog.at_level(logging.WARNING):
        outcomes(pending(tmp_path / "a.txt"))
    assert "1 places are not valid UTF-8" in caplog.text


def test_large_files_are_not_read_far_ahead(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.")
    files = [Pending(str(tmp_path / "a.txt"), 20_000_000, None) for _ in range(6)]
    taken = []

    def give() -> Any:
        for file in files:
            taken.append(file)
            yield file

    with Readers(4) as readers:
        results = readers.read(give())
        next(results)
        assert len(taken) == 2


def test_texts_wait_for_their_turn_in_their_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of a file may stand for any number of characters."""
    monkeypatch.setattr("app.ingestion.readers.AHEAD", 100_000)
    paths = [tmp_path / f"{number}.txt" for number in range(9)]
    for path in paths:
        path.write_text("Words. " * 10_000)
    with Readers(2) as readers:
        entered = []
        for _, outcome in readers.read([Pending(str(path), 1, None) for path in paths]):
            assert isinstance(outcome, ReadFile)
            entered.append(readers._backlog.nbytes)
    assert len(entered) == 9
    assert max(entered) <= 100_000


def test_a_backlog_lets_in_what_has_room_or_is_expected() -> None:
    backlog = Backlog(100)
    with ThreadPoolExecutor() as threads:
        backlog.enter(1, 90)
        first, third = threads.submit(backlog.enter, 0, 500), threads.submit(backlog.enter, 2, 11)
        backlog.enter(3, 10)
        assert not first.done() and not third.done()
        with backlog.turn():
            first.result(timeout=60)
            assert backlog.nbytes == 600
        assert not third.done()
        with backlog.turn():
            pass
        third.result(timeout=60)
        assert backlog.nbytes == 21
        late = threads.submit(backlog.enter, 4, 1_000)
        backlog.close()
        late.result(timeout=60)


def test_texts_that_nobody_takes_keep_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ingestion.readers.AHEAD", 1)
    (tmp_path / "a.txt").write_text("Words.")
    files = pending(*[tmp_path / "a.txt"] * 8)
    with Readers(2) as readers:
        left = readers.read(files)
        next(left)
        assert [file for file, _ in readers.read(files)] == files


def test_a_known_content_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.7 nothing")
    failed = read(Job(str(path), None, ParseLimits()))
    assert isinstance(failed, Unread) and failed.stamp is not None
    assert read(Job(str(path), failed.stamp.content_hash, ParseLimits())) == Same(failed.stamp)
    state = FileState(1, failed.stamp.content_hash, 0, 0, "failed", 1, "damaged")
    file = Pending(str(path), 16, state)
    with Readers(1) as readers:
        assert [one for _, one in readers.read([file])] == [Same(failed.stamp)]
        assert [one for _, one in readers.read([file], retry=True)] == [failed]


def test_records_can_be_sent() -> None:
    for outcome in (Same(FileStamp("h", 1, 2)), Unread("why", None)):
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_a_large_file_may_take_longer_up_to_a_bound() -> None:
    with Readers(1) as readers:
        seconds = [readers._job(Pending("a", size, None), False).seconds for size in (0, 1 << 20, 10**12)]
    assert seconds == [120.0, 180.0, 1800.0]


def test_a_reading_process_knows_what_it_needs_alone() -> None:
    """Each library more is memory that a file may lack, and time before the first one is read."""
    known = (
        "import sys, app.ingestion.worker, app.loaders.text; print({'numpy', 'sqlalchemy', 'torch'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", known], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
