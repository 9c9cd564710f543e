"""What of a file that cannot be read is remembered, so that it is not tried again until it changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app.ingestion.worker import Job, ReadFile, Unread, read, time_of_change
from app.loaders.base import ParseLimits


@pytest.mark.parametrize(("data", "told"), [(b"", "is empty"), (b"x" * 11, "more than the limit")])
def test_what_will_not_change_by_itself_has_a_stamp(data: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    outcome = read(Job(str(path), None, ParseLimits(max_bytes=10)))
    assert isinstance(outcome, Unread) and told in outcome.reason
    stat = path.stat()
    assert outcome.stamp is not None
    assert (outcome.stamp.size, outcome.stamp.mtime_ns) == (len(data), stat.st_mtime_ns)


def test_what_may_be_there_in_a_minute_has_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for name in ("gone.txt", "pipe.txt", "unknown.suffix"):
        outcome = read(Job(str(tmp_path / name), None, ParseLimits()))
        assert isinstance(outcome, Unread) and outcome.stamp is None


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    import app.ingestion.worker as reading

    parse, changes = reading.parse, iter([b"newer", b"newest"])

    def parsed(*arguments: Any) -> Any:
        for data in changes:
            path.write_bytes(data)
            break
        return parse(*arguments)

    monkeypatch.setattr(reading, "parse", parsed)
    outcome = read(Job(str(path), None, ParseLimits()))
    assert isinstance(outcome, ReadFile) and outcome.parsed.text == "newest"
    assert outcome.stamp.size == 6
    changes = iter([b"1", b"22", b"333"])
    restless = read(Job(str(path), None, ParseLimits()))
    assert isinstance(restless, Unread) and "changes again and again" in restless.reason


@pytest.mark.parametrize(("of_the_file", "kept"), [(7, 7), (-7, -7), (1 << 63, 2**63 - 1), (-1 << 70, 1 - 2**63)])
def test_times_are_such_as_a_database_keeps(of_the_file: int, kept: int) -> None:
    assert time_of_change(os.stat_result(range(10), {"st_mtime_ns": of_the_file})) == kept
