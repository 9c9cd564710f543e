"""How often the programs of a cache folder ask for what a bucket may hold, as all machines that share it are told."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragcache.errors import StoreError
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


@dataclass(slots=True)
class _Counted:
    last: float
    count: float = 0.0
    worth: float = 0.0


class UseRecord(FolderFile):
    """Threads and processes may share it. What is counted is in memory until it is written down: as often as it is
    told, and when the program ends.
    """

    def __init__(self, root: Path, bucket: str, clock: Callable[[], float] = time.time):
        """`bucket`: its URL. Raises StoreError."""
        super().__init__(root, _TABLE, _MACHINE)
        self._bucket, self._clock = bucket, clock
        self._begin()
        now = clock()
        with self._open() as connection:
            connection.execute("INSERT OR IGNORE INTO machines VALUES (?, ?, ?)", (bucket, secrets.token_hex(16), now))
            (found,) = connection.execute("SELECT name, told FROM machines WHERE bucket = ?", (bucket,))
        self.machine: str = found[0]  # its name
        self._seen: float = found[1]  # when all was told, as of the last look
        self._due = min(now, self._seen) + TOLD_S

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, _Counted] = {}
        self._gone = set[str]()
        self._is_due = False

    def after_fork_in_child(self) -> None:
        """What its parent has counted is its parent's."""
        super().after_fork_in_child()
        self._begin()

    def count(self, key: VariantKey) -> bool:
        """A use; says, once, whether it is time to tell them."""
        name, now = use_name(key.digest), self._clock()
        with self._lock:
            if (counted := self._counted.get(name)) is None and len(self._counted) < MOST_COUNTED:
                counted = self._counted[name] = _Counted(now)
            if counted is not None:
                counted.last = now
                counted.count += 1
                counted.worth += 1
            return self._becomes_due(now)

    def _becomes_due(self, now: float) -> bool:
        """Once, when it is time to."""
        if self._due - TOLD_S <= now < self._due:
            return False
        self._due, self._is_due = now + TOLD_S, True
        return True

    def credit(self, key: VariantKey, worth: float) -> None:
        """To one that was used, which counted as 1."""
        with self._lock:
            if (counted := self._counted.get(use_name(key.digest))) is not None:
                counted.worth += worth - 1

    def forget(self, digests: Iterable[str]) -> None:
        """They were deleted, and are told no more."""
        names, now = set(map(use_name, digests)), self._clock()
        with self._lock:
            if len(self._gone) < MOST_TOLD:  # of more the uses fade
                self._gone |= names
            for name in names & self._counted.keys():
                del self._counted[name]
            self._becomes_due(now)

    def keep(self) -> None:
        """Write down what was counted. Raises StoreError: then it is lost, but for what is to be forgotten."""
        with self._lock:
            counted, self._counted = self._counted, {}
            gone, self._gone = self._gone, set()
        try:
            if counted or gone:
                self._write(counted, gone)
        except StoreError:
            with self._lock:
                self._gone |= gone
            raise

    def _write(self, counted: Mapping[str, _Counted], gone: Collection[str]) -> None:
        now = self._clock()
        rows = [(self._bucket, name, one.count, one.count, one.worth, one.last) for name, one in counted.items()]
        with self._open() as connection:
            connection.create_function("faded", 1, faded, deterministic=True)
            connection.execute("BEGIN IMMEDIATE")
            forgotten = "DELETE FROM uses WHERE bucket = ? AND name = ?"
            if connection.executemany(forgotten, [(self._bucket, name) for name in gone]).rowcount > 0:
                connection.execute("UPDATE machines SET told = min(told, 0) - 1 WHERE bucket = ?", (self._bucket,))
            connection.execute("UPDATE uses SET last = ? WHERE last > ?", (now, now))  # a clock that was ahead
            connection.executemany(_ADD, rows)
            connection.execute("DELETE FROM uses WHERE last < ?", (now - KEPT_S,))
            connection.execute(
                "DELETE FROM uses WHERE bucket = ? AND last < "
                "(SELECT last FROM uses WHERE bucket = ? ORDER BY last DESC LIMIT 1 OFFSET ?)",
                (self._bucket, self._bucket, MOST_TOLD - 1),
            )

    def due(self, *, at_once: bool = False) -> list[Used] | None:
        """What was used, where it is time to tell that and no other program has; what was counted is written down.
        Raises StoreError.
        """
        with self._lock:
            is_due, self._is_due = self._is_due or at_once, False
        if not is_due:
            return None
        self.keep()
        now, told = self._clock(), self._told_at()
        self._seen = told
        if told <= now < told + TOLD_S and not at_once:
            return None
        used = self.used()
        is_news = told <= 0 or told > now or (used and used[0].last > told)
        return used if is_news else None

    def used(self) -> list[Used]:
        """By all programs of the folder, as far as they have written it down, the last first. Raises StoreError."""
        with self._open() as connection:
            last = "SELECT name, count, later, worth, last FROM uses WHERE bucket = ? ORDER BY last DESC LIMIT ?"
            return [Used(*row) for row in connection.execute(last, (self._bucket, MOST_TOLD))]

    def told(self) -> None:
        """What was due has been told, unless something was forgotten meanwhile. Raises StoreError."""
        with self._open() as connection:
            told = "UPDATE machines SET told = ? WHERE bucket = ? AND told = ?"
            connection.execute(told, (self._clock(), self._bucket, self._seen))

    def _told_at(self) -> float:
        with self._open() as connection:
            ((told,),) = connection.execute("SELECT told FROM machines WHERE bucket = ?", (self._bucket,))
        return float(told)
