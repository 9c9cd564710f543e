"""`ragcache chat` through a pipe in this process, and at a terminal of its own."""

from __future__ import annotations

import errno
import io
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from app import RagPipeline, Settings
from app.catalog.engine import Database
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from retriever.searcher import Searcher
from tests.app.cli.inside import Ran, make_run

ROOT = Path(__file__).parents[3]
# A terminal sends its interrupts to those that it belongs to.
OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from app.cli import main; main()"
FIRST, SECOND = "Who designed the lighthouse?", "How tall is it?"
Chat = Callable[..., Ran]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def flags(library: Settings) -> list[str]:
    return [
        "--model", library.model, "--data-dir", str(library.data_dir), "--cache-dir", str(library.cache_dir)
    ]  # fmt: skip


@pytest.fixture
def chat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Settings
) -> Chat:
    monkeypatch.chdir(tmp_path)
    run = make_run(capsys, monkeypatch, "--max-tokens", "6", *flags(library))

    def chat(lines: str | io.StringIO, *arguments: str) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines) if isinstance(lines, str) else lines)
        return run("chat", *arguments)

    return chat


def conversation_of(ran: Ran) -> str:
    found = re.search(r"ragcache chat --continue (\w+)$", ran.err.strip())
    assert found is not None, ran.err
    return found[1]


def test_lines_are_questions_and_the_end_of_them_the_end(chat: Chat, pipeline: RagPipeline) -> None:
    ran = chat(f"{FIRST}\n\n{SECOND}\n")
    assert ran.code == 0
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [FIRST, SECOND]
    assert ran.out == "".join(f"{message.content}\n" for message in messages[1::2])
    assert ran.err.count("first token") == 2


def test_it_goes_on_with_a_stored_conversation(chat: Chat, pipeline: RagPipeline) -> None:
    stored = conversation_of(chat(FIRST))
    assert conversation_of(chat(SECOND, "--continue", stored, "--no-show-report")) == stored
    assert len(pipeline.conversation(stored).messages) == 4


def test_commands(chat: Chat, pipeline: RagPipeline) -> None:
    ran = chat(f"{FIRST}\n/sources\n/new\n/sources\n{SECOND}\n/nope\n/quit\n{FIRST}\n")
    first, *sources, last = ran.out.splitlines()
    assert first
    assert last
    assert [line[:3] for line in sources[::2]] == ["[1]", "[2]", "[3]", "[4]", "[5]"]
    assert "no command /nope\n/new " in ran.err
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [SECOND], "a new conversation, and no question after /quit"


def test_a_question_that_cannot_be_asked_does_not_end_the_chat(chat: Chat) -> None:
    ran = chat(f"{'why ' * 3000}\n{FIRST}\n")
    assert ran.code == 0
    assert ran.err.startswith("error: the question is too long")
    assert "first token" in ran.err


def test_an_unknown_conversation_is_an_error(chat: Chat) -> None:
    ran = chat(FIRST, "--continue", "nope")
    assert ran.code == 1
    assert ran.err.startswith("error: no conversation 'nope'")


def test_at_a_terminal_an_interrupt_drops_what_was_typed(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[type[BaseException]] = [EOFError, KeyboardInterrupt]

    def read(prompt: str) -> str:
        raise typed.pop()

    monkeypatch.setattr("builtins.input", read)
    ran = chat(Terminal())
    assert ran.code == 0
    assert typed == [], "the chat went on until the end of the input"
    assert "/quit     end" in ran.out


def test_at_a_terminal_an_interrupt_stops_the_answer_and_not_the_chat(library: Settings, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    arguments = ["chat", "--max-tokens", "1500", *flags(library)]
    outside = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    with subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, *arguments], cwd=tmp_path, env=outside,
        stdin=slave, stdout=slave, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(slave)
        read_until(master, b"> ")
        os.write(master, f"{FIRST}\n".encode())
        read_until(master, FIRST.encode() + b"\r\n")
        os.read(master, 1)  # the answer has begun
        os.write(master, b"\x03")
        read_until(master, b"\r\n> ")
        os.write(master, b"\x04")
        _, told = process.communicate(timeout=100)
    os.close(master)
    assert process.returncode == 0
    assert b"note: stopped before its end" in told
    assert b"ragcache chat --continue " in told


def read_until(terminal: int, end: bytes) -> bytes:
    seen = b""
    while not seen.endswith(end):
        seen += os.read(terminal, 1)
    return seen


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


def test_a_collection_that_goes_and_comes_again_is_told(chat: Chat, pipeline: RagPipeline) -> None:
    catalog = pipeline.workspace.catalog

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
def locked(library: Settings) -> Iterator[sqlite3.Connection]:
    """Another program that keeps the catalog, once it has begun to write."""
    with closing(sqlite3.connect(library.data_dir / "catalog.sqlite", isolation_level=None)) as other:
        yield other


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database.__init__, "__defaults__", (0.01,))


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


def test_a_closed_pipe_ends_it_and_what_was_said_is_stored(
    chat: Chat, pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    ran = chat(f"{FIRST}\n{SECOND}\n{FIRST}\n")
    assert ran.code == 1
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2][0] == FIRST
    assert len(messages) <= 4
