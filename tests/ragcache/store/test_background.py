"""What look-ups leave behind is done, whatever becomes of its thread."""

from __future__ import annotations

import logging
import sqlite3
import threading

import pytest

from ragcache.store.background import Background


def test_a_task_that_fails_is_logged_and_the_next_one_done(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def fail() -> None:
        raise sqlite3.OperationalError("the disk is full")

    background = Background()
    with caplog.at_level(logging.WARNING):
        for task in (fail, lambda: done.append("next")):
            background.add(task)
        background.settle()
    assert done == ["next"]
    assert "not tidied up: the disk is full" in caplog.text


def test_without_a_thread_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[str] = []
    background = Background()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        background.add(lambda: done.append("first"))
    assert done == []
    background.add(lambda: done.append("second"))
    background.settle()
    assert done == ["first", "second"]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        background.add(lambda: done.append("third"))
        background.settle()
    assert done[-1] == "third"


def test_what_waits_already_is_not_told_twice() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def wait() -> None:
        begun.set()
        go_on.wait(60)

    background = Background()
    background.add(wait)
    assert begun.wait(30)
    for number in (1, 2, 1, 2, 1):
        background.add(done.append, number)
    go_on.set()
    background.settle()
    assert done == [1, 2]
