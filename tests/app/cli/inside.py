"""The command line in this process, by its entry point: as a user meets it, without a start of Python each time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


def make_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *flags: str) -> Run:
    """A function that runs a command; `flags` stand behind each."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["ragcache", *arguments, *flags])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
            raise SystemExit(0)
        captured = capsys.readouterr()
        return Ran(int(end.value.code or 0), captured.out, captured.err)

    return run
