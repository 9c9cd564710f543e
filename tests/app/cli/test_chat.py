"""`ragcache chat` through a pipe in this process, and at a terminal of its own."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from tests.app.cli.conftest import FIRST, SECOND, Chat, conversation_of, flags

ROOT = Path(__file__).parents[3]
# A terminal sends its interrupts to those that it belongs to.
OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from app.cli import main; main()"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_questions_and_the_end_of_them_the_end(chat: Chat, pipeline: RagPipeline) -> None:
    ran = chat(f"{FIRST}\n\n{SECOND}\n")
    assert ran.code == 0
    messages = pipeline.conversation(conversation_of(ran)).messages
    assert [message.content for message in messages][::2] == [FIRST, SECOND]
    assert ran.out == "".join(f"{message.content}\n" for message in messages[1::2])
    assert ran.err.count("first token") == 2


@pytest.mark.slow
def test_it_goes_on_with_a_stored_conversation(chat: Chat, pipeline: RagPipeline) -> None:
    stored = conversation_of(chat(FIRST))
    assert conversation_of(chat(SECOND, "--continue", stored, "--no-show-report")) == stored
    assert len(pipeline.conversation(stored).messages) == 4


def test_commands(chat: Chat, pipeline: RagPipeline) -> None:
    ran = chat(f"{FIRST}\n/sources\n/new\n/sources\n{SECOND}\n/nope\n/quit\n{FIRST}\n")
    # The answers, which may have any lines, stand around them.
    assert re.findall(r"^\[\d+\] ", ran.out, re.MULTILINE) == ["[1] ", "[2] ", "[3] ", "[4] ", "[5] "]
    assert not re.match(r"\[1\] ", ran.out)
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


@pytest.mark.slow
def test_at_a_terminal_an_interrupt_stops_the_answer_and_not_the_chat(sampled: Settings, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    arguments = ["chat", "--max-tokens", "1500", *flags(sampled)]
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
