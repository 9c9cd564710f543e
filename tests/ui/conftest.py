"""Frame of the page's tests."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest makes its script the main module and leaves it; a process that a later test spawns would run that."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
