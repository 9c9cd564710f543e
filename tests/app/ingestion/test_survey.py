"""What is new, changed and gone, from names and times alone."""

from __future__ import annotations

import os
from pathlib import Path

from app.ingestion import IngestOptions
from app.ingestion.survey import RealNames, take_survey
from app.library.catalog.records import FileState


def known(path: Path, **changes: object) -> FileState:
    stat = path.stat()
    values = {"id": 1, "content_hash": "h", "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "state": "ready"}
    return FileState(**(values | {"attempts": 0, "error": None} | changes))


def test_size_and_time_tell_what_has_changed(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text("words")
    a, b, c, d, e = sorted(tmp_path.iterdir())
    states = {
        str(a): known(a), str(b): known(b, size=4), str(c): known(c, mtime_ns=1), str(d): known(d, state="failed"),
    }  # fmt: skip
    survey = take_survey([tmp_path], IngestOptions(), states)
    assert [file.source for file in survey.pending] == [str(b), str(c), str(e)]
    assert (survey.unchanged, survey.skipped, survey.failures) == (1, 1, [])
    again = take_survey([tmp_path], IngestOptions(retry_failed=True), states)
    assert [file.source for file in again.pending] == [str(b), str(c), str(d), str(e)]
    assert [file.is_ready for file in again.pending] == [True, True, False, False]


def test_files_that_nothing_reads_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    assert take_survey([tmp_path], IngestOptions(), {}).unread() == ""
    (tmp_path / "noname").write_text("words")
    told = take_survey([tmp_path], IngestOptions(), {}).unread()
    assert told == "1 file is left out, since no loader reads files without a suffix (1): convert what should be in"
    for name in ("a.DOC", "b.doc", "c.wpd", "d.wps", "e.\n\x1b[2J", f"f.{'x' * 200}", "g.zip"):
        (tmp_path / name).write_text("words")
    told = take_survey([tmp_path], IngestOptions(), {}).unread()
    assert told == (
        "8 files are left out, since no loader reads .doc (2), files without a suffix (1), .\\n\\x1b[2j (1), .wpd (1), "
        ".wps (1), …: convert what should be in"
    )
    assert take_survey([tmp_path], IngestOptions(glob=["*.txt"]), {}).unread() == ""
    odd = take_survey([tmp_path], IngestOptions(glob=["f.*"]), {}).unread()
    assert odd == "1 file is left out, since no loader reads .xxxxxxxxxxx… (1): convert what should be in"


def test_dead_links_and_loops_are_failures(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "a.txt").write_text("words")
    survey = take_survey([tmp_path], IngestOptions(), {})
    assert [failure.source for failure in survey.failures] == [str(tmp_path / "loop.txt")]
    assert len(survey.pending) == 1


def test_names_without_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "a.txt").write_text("words")
    (tmp_path / "real" / "b.txt").symlink_to("a.txt")
    odd = tmp_path / "real" / os.fsdecode(b"line\nbreak \xff.txt")
    odd.write_text("words")
    real = RealNames()
    for path in (
        tmp_path / "link" / "a.txt", tmp_path / "link" / "b.txt", tmp_path / "link" / ".." / "real" / "a.txt",
        tmp_path / "link" / odd.name, tmp_path / "link", tmp_path / "real" / "..", Path("/"), Path("gone.txt"),
    ):  # fmt: skip
        assert real.of(path) == os.path.realpath(path)
