"""Programs of ours that a command starts, and that end with it, also where it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import IO

# A child finds the packages where we did, and none in the folder that it is started in. Linux tells it of our end.
_START = (
    "import json, signal, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from app.loaders.confinement import end_with; end_with(int(sys.argv.pop(1)), signal.SIGTERM); "
    "from {module} import main; main()"
)
KEPT = 20  # lines of what it said


class ChildProgram:
    """`main` of a module. What it writes goes on to `shown`; its last lines tell why it ended."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        ended: Queue[ChildProgram],
        shown: IO[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ):
        """It is put into `ended` when it has. Called in a thread that lasts as long as the program shall."""
        start = [sys.executable, "-c", _START.format(module=module), json.dumps(sys.path), str(os.getpid())]
        self._process = subprocess.Popen(
            [*start, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            process_group=0,  # Ctrl-C in a terminal is for us, and we end it
            text=True,
            errors="replace",
        )
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._shown, self._ended = shown, ended
        self._reading = threading.Thread(target=self._read, name="ragcache-child", daemon=True)
        self._reading.start()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def reason(self) -> str:
        """Its last words, once it has ended."""
        self._reading.join()
        said = [line for line in self.lines if line.strip()]
        return said[-1].removeprefix("error: ") if said else f"it ended with {self._process.wait()}"

    def end(self, grace_s: float) -> None:
        """By a signal, or after so many seconds at once."""
        if self.runs:
            self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))
                if self._shown is not None:
                    print(line, end="", file=self._shown, flush=True)
        self._process.wait()
        self._ended.put(self)
