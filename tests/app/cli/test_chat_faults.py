"""What can go wrong with one question of a chat: it is told, the chat goes on, and what was shown is stored."""

from __future__ import annotations

import errno
import io
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from app import RagPipeline, Settings
from app.library.catalog import open_catalog
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from retriever.searcher import Searcher
from tests.app.cli.conftest import FIRST, SECOND, Chat, conversation_of


def test_a_line_that_is_no_text_costs_that_line(chat: Chat, pipeline: RagPipeline) -> None:
    raw = b"Who \xff is it?\n/nope\xfe\nWhat\0 is it?\n" + FIRST.encode()  # and no line end behind the last one
    ran = chat(io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
    assert ran.code == 0
    assert ran.err.startswith("error: the question is no valid text: 'Who \\udcff'")
    assert "no command /nope\\udcfe" in ran.err
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == ["What\0 is it?", FIRST]


class Going(io.StringIO):
    """Input whose lines have something happen before they are read."""

    def __init__(self, *steps: str | Callable[[], object]):
        super().__init__("".join(f"{step}\n" for step in steps if isinstance(step, str)))
        self.steps = list(steps)

    def readline(self, size: int | None = -1, /) -> str:
        while self.steps and not isinstance(self.steps[0], str):
            step = self.steps.pop(0)
            assert not isinstance(step, str)
            step()
        self.steps = self.steps[1:]
        return super().readline(size)


@pytest.mark.slow
def test_a_collection_that_goes_and_comes_again_is_told(chat: Chat, pipeline: RagPipeline) -> None:
    catalog = pipeline.library.catalog

    def away() -> None:
        catalog.collections.rename(catalog.collections.get("default"), "away")

    def back() -> None:
        catalog.collections.rename(catalog.collections.get("away"), "default")

    ran = chat(Going(FIRST, away, SECOND, "/new", back, SECOND))
    assert ran.code == 0
    assert ran.err.count("error: no collection 'default'; there are: away.") == 2
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [FIRST, SECOND], "/new did not take place"


@pytest.fixture
def locked(sampled: Settings) -> Iterator[sqlite3.Connection]:
    """Another program that keeps the catalog, once it has begun to write."""
    with closing(sqlite3.connect(sampled.data_dir / "catalog.sqlite", isolation_level=None)) as other:
        yield other


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are started now wait but a moment for others."""
    assert open_catalog.__defaults__ == (30.0,)
    monkeypatch.setattr(open_catalog, "__defaults__", (0.01,))


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_cannot_be_stored_is_told_and_stored_later(
    chat: Chat, pipeline: RagPipeline, locked: sqlite3.Connection
) -> None:
    ran = chat(Going(lambda: locked.execute("BEGIN IMMEDIATE"), FIRST, lambda: locked.execute("COMMIT"), SECOND))
    assert ran.code == 0
    assert ran.err.count("note: not stored yet: cannot use the catalog") == 1
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [FIRST, SECOND]
    assert ran.out == "".join(f"{message.content}\n" for message in messages[1::2])


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_what_can_never_be_stored_is_told_at_the_end(chat: Chat, locked: sqlite3.Connection) -> None:
    ran = chat(Going(lambda: locked.execute("BEGIN IMMEDIATE"), FIRST, SECOND, "/new", FIRST))
    locked.execute("ROLLBACK")
    assert ran.code == 1
    assert ran.err.count("note: not stored yet") == 3
    assert "another process keeps it locked" in ran.err
    assert "Not stored: 2 answers\n" in ran.err
    assert "Not stored: 1 answer\n" in ran.err
    assert len(ran.out.splitlines()) >= 3, "all was answered"


def test_an_engine_that_breaks_amid_an_answer_leaves_what_was_shown(
    chat: Chat, pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, seen = TorchEngine.logits, list[int]()

    def breaking(engine: TorchEngine, hidden: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        if len(seen) == 5:
            raise ModelError("the engine broke")
        return logits(engine, hidden)

    monkeypatch.setattr(TorchEngine, "logits", breaking)
    ran = chat(f"{FIRST}\n{SECOND}\n")
    assert ran.code == 0
    assert "error: the engine broke" in ran.err
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [FIRST, SECOND]
    assert ran.out == "".join(f"{message.content}\n" for message in messages[1::2])
    assert messages[1].report is not None
    assert messages[1].report["answer_tokens"] == 4


def test_an_interrupt_amid_an_answer_stores_what_was_shown(
    chat: Chat, pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, seen = TorchEngine.logits, list[int]()

    def interrupted(engine: TorchEngine, hidden: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        if len(seen) == 5:
            signal.raise_signal(signal.SIGINT)
        return logits(engine, hidden)

    monkeypatch.setattr(TorchEngine, "logits", interrupted)
    ran = chat(f"{FIRST}\n{SECOND}\n")
    assert ran.code == 0
    assert ran.err.count("note: stopped before its end") == 1
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert ran.out == "".join(f"{message.content}\n" for message in messages[1::2])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_first_word_does_not_end_it(
    chat: Chat, pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, seen = Searcher.search, list[int]()

    def interrupted(searcher: Searcher, *values: Any, **more: Any) -> Any:
        seen.append(1)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)
        return search(searcher, *values, **more)

    monkeypatch.setattr(Searcher, "search", interrupted)
    ran = chat(f"{FIRST}\n{SECOND}\n")
    assert ran.code == 0
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [SECOND]


class Closed(io.StringIO):
    """A pipe whose reader goes after the first line."""

    def write(self, text: str, /) -> int:
        if self.getvalue().endswith("\n"):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@pytest.mark.slow
def test_a_closed_pipe_ends_it_and_what_was_said_is_stored(
    chat: Chat, pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    ran = chat(f"{FIRST}\n{SECOND}\n{FIRST}\n")
    assert ran.code == 1
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2][0] == FIRST
    assert len(messages) <= 4
