"""`ragcache serve` in a process of its own, and what the system tells of it and of processes that it has started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import httpx2

from app.server.process import check_models
from app.settings import Settings, variable
from ragcache.errors import ConfigError

PROC = Path("/proc")
COMMAND = "from app.cli import main; main()"
OWN = ("database_url", "remote", "remote_bytes")  # settings that a measurement has no business with
STARTING_S, ENDING_S = 900.0, 60.0
SAMPLE_S = 0.25
QUIET_S, QUIET_SHARE, LOOK_S = 120.0, 0.2, 0.5
TOLD = 2000  # characters of a log
_URL = re.compile(r"http://127\.0\.0\.1:\d+(?=/v1)")


@dataclass(frozen=True)
class ProcessUse:
    """Of a process and all below it."""

    rss: int  # bytes
    fds: int
    seconds: float  # that they have computed


class ServerChild:
    """Use it in `serving`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path):
        self.process, self._log = process, log
        self.url = self.model = ""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def told(self) -> str:
        return self._logged()[-TOLD:].strip()

    def wait_until_ready(self) -> None:
        """Raises ConfigError when it ends before."""
        self.url = self._until(lambda: _found(_URL, self._logged()))
        with httpx2.Client(base_url=self.url, trust_env=False) as client:
            self._until(lambda: "ready" if client.get("/ready").status_code == httpx2.codes.OK else "")
            self.model = client.get("/v1/models").json()["data"][0]["id"]

    def _logged(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _until(self, look: Callable[[], str]) -> str:
        deadline = monotonic() + STARTING_S
        while monotonic() < deadline:
            with suppress(httpx2.TransportError):
                if found := look():
                    return found
            check_models(self._logged())
            if not self.alive:
                raise ConfigError(f"the server ended with {self.process.returncode}: {self.told}")
            sleep(SAMPLE_S)
        raise ConfigError(f"the server was not ready after {STARTING_S:.0f} s: {self.told}")

    def use(self) -> ProcessUse | None:
        """None where it has ended, or where there is no /proc."""
        found = [one for pid in _family(self.process.pid) if (one := _use(pid)) is not None]
        if not found:
            return None
        return ProcessUse(sum(one.rss for one in found), sum(one.fds for one in found), sum(o.seconds for o in found))

    def wait_until_quiet(self) -> None:
        """Until it has done what it does when nobody asks, such as keeping what prompts lacked. Not for ever."""
        deadline = monotonic() + QUIET_S
        before = self.use()
        while before is not None and monotonic() < deadline:
            sleep(LOOK_S)
            after = self.use()
            if after is None or after.seconds - before.seconds < QUIET_SHARE * LOOK_S:
                return
            before = after


@contextmanager
def serving(settings: Settings, folder: Path, **own: str) -> Iterator[ServerChild]:
    """One with folders of its own in `folder`, and these settings over those of `settings`. Raises ConfigError."""
    folder.mkdir(parents=True)
    given = {name: getattr(settings, name) for name in settings.model_fields_set if name not in OWN}
    given |= {"engine": settings.engine, "data_dir": folder / "data", "cache_dir": folder / "cache"} | own
    argv = ["env", *(f"--unset={variable(name)}" for name in OWN), *_variables(given)]
    log = folder / "log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [*argv, sys.executable, "-c", COMMAND, "serve", "--host", "127.0.0.1", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            cwd=folder,  # where no .env is
        )
    try:
        child = ServerChild(process, log)
        child.wait_until_ready()
        yield child
    finally:
        _end(process)


def _variables(given: Mapping[str, object]) -> list[str]:
    return [f"{variable(name)}={value}" for name, value in given.items() if value is not None]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class UseWatch:
    """Looks at a server again and again while it is measured."""

    child: ServerChild
    samples: list[ProcessUse] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), name="use", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            if (one := self.child.use()) is not None:
                self.samples.append(one)


def growth(values: Sequence[float]) -> float | None:
    """From behind the first third to the end: between the medians of a fifth of what is left at either side. None where
    that is too few.
    """
    settled = values[len(values) // 3 :]
    fifth = len(settled) // 5
    return median(settled[-fifth:]) - median(settled[:fifth]) if fifth else None


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text("ascii").split():
                    yield from _family(int(child))


def _use(pid: int) -> ProcessUse | None:
    try:
        folder, ticks = PROC / str(pid), os.sysconf("SC_CLK_TCK")
        pages = int((folder / "statm").read_text("ascii").split()[1])
        times = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[11:13]
        fds = len(list((folder / "fd").iterdir()))
    except (OSError, ValueError, IndexError):  # it has ended
        return None
    return ProcessUse(pages * os.sysconf("SC_PAGE_SIZE"), fds, sum(map(int, times)) / ticks)


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[0] if found else ""
