"""`ragcache chat` through a pipe in this process."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app import Settings
from tests.app.cli.inside import Ran, make_run

FIRST, SECOND = "Who designed the lighthouse?", "How tall is it?"
Chat = Callable[..., Ran]


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
