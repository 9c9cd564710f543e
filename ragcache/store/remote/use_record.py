"""How often the programs of a cache folder ask for what a bucket may hold, as all machines that share it are told."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ragcache.store.remote.folder_file import FolderFile
from ragcache.types import VariantKey

HALF_S = 7 * 86_400.0  # in which a use comes to count half
KEPT_S = 30 * 86_400.0  # for which an entry that nobody asks for is remembered
TOLD_S = 600.0  # between two times that they are told
MOST_COUNTED = 16_384  # names, until they are written down
MOST_TOLD = 32_768  # those that were used last
_TABLE = """
CREATE TABLE IF NOT EXISTS uses (
    bucket TEXT, name TEXT, count REAL NOT NULL, later REAL NOT NULL, worth REAL NOT NULL, last REAL NOT NULL,
    PRIMARY KEY (bucket, name)
)
"""
_MACHINE = "CREATE TABLE IF NOT EXISTS machines (bucket TEXT PRIMARY KEY, name TEXT NOT NULL, told REAL NOT NULL)"
_ADD = """
INSERT INTO uses VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, worth = worth + excluded.worth,
later = later * faded(excluded.last - last) + excluded.later, last = max(last, excluded.last)
"""


@dataclass(frozen=True)
class Used:
    """By the programs of one machine."""

    name: str  # the first sixteen digits of an entry's digest
    count: float  # in all
    later: float  # as they faded until the last
    worth: float  # 1/CFO of each
    last: float  # a Unix time


def faded(seconds: float) -> float:
    """What a use counts after them."""
    return float(0.5 ** (max(0.0, seconds) / HALF_S))


def use_name(digest: str) -> str:
    return digest[:16]


class UseRecord(FolderFile):
    """Threads and processes may share it. What is counted is in memory until it is written down: as often as it is
    told, and when the program ends.
    """

    def __init__(self, root: Path, bucket: str, clock: Callable[[], float] = time.time):
        """`bucket`: its URL. Raises StoreError."""
        super().__init__(root, _TABLE, _MACHINE)
        self._bucket, self._clock = bucket, clock
        self._lock = threading.Lock()
        self._counted: dict[str, list[float]] = {}  # uses, and their worth
        self._due = clock() + TOLD_S

    def count(self, key: VariantKey) -> bool:
        """A use; says whether it is time to tell them."""
        name = use_name(key.digest)
        with self._lock:
            if (counted := self._counted.get(name)) is not None:
                counted[0] += 1
                counted[1] += 1
            elif len(self._counted) < MOST_COUNTED:
                self._counted[name] = [1.0, 1.0]
            return self._clock() >= self._due

    def credit(self, key: VariantKey, worth: float) -> None:
        """To one that was used, which counted as 1."""
        with self._lock:
            if (counted := self._counted.get(use_name(key.digest))) is not None:
                counted[1] += worth - 1

    def keep(self) -> None:
        """Write down what was counted. Raises StoreError: then it is lost."""
        self._keep(self._clock())

    def _keep(self, now: float) -> None:
        with self._lock:
            counted, self._counted = self._counted, {}
        if not counted:
            return
        rows = [(self._bucket, name, uses, uses, worth, now) for name, (uses, worth) in counted.items()]
        with self._open() as connection:
            connection.create_function("faded", 1, faded, deterministic=True)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_ADD, rows)

    def due(self, *, at_once: bool = False) -> tuple[str, list[Used]] | None:
        """The machine's name and what it has used, where it is time to tell that and no other process does; what was
        counted is written down. Raises StoreError.
        """
        now = self._clock()
        with self._lock:
            if now < self._due and not at_once:
                return None
            self._due = now + TOLD_S
        self._keep(now)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO machines VALUES (?, ?, 0)", (self._bucket, secrets.token_hex(16)))
            of_bucket = (self._bucket,)
            ((machine, told),) = connection.execute("SELECT name, told FROM machines WHERE bucket = ?", of_bucket)
            connection.execute("DELETE FROM uses WHERE bucket = ? AND last < ?", (self._bucket, now - KEPT_S))
            connection.execute(
                "DELETE FROM uses WHERE bucket = ? AND name NOT IN "
                "(SELECT name FROM uses WHERE bucket = ? ORDER BY last DESC LIMIT ?)",
                (self._bucket, self._bucket, MOST_TOLD),
            )
            last = "SELECT name, count, later, worth, last FROM uses WHERE bucket = ? ORDER BY last DESC"
            used = [Used(*row) for row in connection.execute(last, of_bucket)]
            if not used or used[0].last <= told or (told <= now < told + TOLD_S and not at_once):
                return None
            connection.execute("UPDATE machines SET told = ? WHERE bucket = ?", (now, self._bucket))
        return str(machine), used
