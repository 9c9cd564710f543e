"""Waits of a client that last no time."""

from __future__ import annotations

from threading import Event

import pytest


def hastened(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of those that connections made from now on would have waited."""
    seconds: list[float] = []

    class Hastened(Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            seconds.append(timeout)
            return self.is_set()

    monkeypatch.setattr("app.client.connection.Event", Hastened)
    return seconds
