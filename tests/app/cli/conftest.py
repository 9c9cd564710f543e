"""`ragcache chat` through a pipe in this process."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import Settings
from app.compose import opened
from app.library import Library
from app.models import Models
from tests.app.cli.inside import Ran, make_run
from tests.app.library.shelves import make_settings

FIRST, SECOND = "Who designed the lighthouse?", "How tall is it?"
Chat = Callable[..., Ran]


def flags(sampled: Settings) -> list[str]:
    return [
        "--model", sampled.model, "--data-dir", str(sampled.data_dir), "--cache-dir", str(sampled.cache_dir)
    ]  # fmt: skip


@pytest.fixture
def both(tiny_folder: Path, tmp_path: Path) -> Iterator[tuple[Library, Models]]:
    """A library in the folder of the test, and its models."""
    with opened(make_settings(tiny_folder, tmp_path)) as both:
        yield both


@pytest.fixture
def library(both: tuple[Library, Models]) -> Library:
    return both[0]


@pytest.fixture
def models(both: tuple[Library, Models]) -> Models:
    return both[1]


@pytest.fixture
def chat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sampled: Settings
) -> Chat:
    monkeypatch.chdir(tmp_path)
    run = make_run(capsys, monkeypatch, "--max-tokens", "6", *flags(sampled))

    def chat(lines: str | io.StringIO, *arguments: str) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines) if isinstance(lines, str) else lines)
        return run("chat", *arguments)

    return chat


def conversation_of(ran: Ran) -> str:
    found = re.search(r"ragcache chat --continue (\w+)$", ran.err.strip())
    assert found is not None, ran.err
    return found[1]
