"""Other programs at full load, started and stopped at will."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from types import TracebackType
from typing import Self

SETTLE_S = 1.0  # until whoever looks at the load of the machine sees that it has changed


class BusyProcesses:
    """Use it in a `with`; they sleep until `running`."""

    def __init__(self, count: int):
        self._children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        self._send(signal.SIGSTOP)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._send(signal.SIGCONT)
        sleep(SETTLE_S)
        try:
            yield
        finally:
            self._send(signal.SIGSTOP)
            sleep(SETTLE_S)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            child.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            child.wait()
