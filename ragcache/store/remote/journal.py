"""What a bucket is still to be told: uploads, and deletions, which must get there though it be away for days.

It lies beside the cache folder's index, for all processes that share the folder. A task that a process has claimed and
not ended (it was killed) falls to another one. Ended deletions are remembered for a while: what was on its way from the
bucket meanwhile is told by them that it has gone. The last one's number is for good.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from ragcache.address import group_of, is_within
from ragcache.store.remote.folder_file import FolderFile
from ragcache.store.remote.health import ALL_LOCKED
from ragcache.store.remote.jitter import jittered
from ragcache.types import VariantKey

MOST_WAITING = 100_000  # uploads; what comes then stays on the disk alone
CLAIM_S = 300.0  # for which nobody else takes up a task
REMEMBERED_S = 900.0
FIRST_S, LONGEST_S = 5.0, 300.0  # until a task that failed is tried again
# What waits for longer was written by a clock that was set back since: no pause and no claim is as long.
AHEAD_S = 900.0
HOPELESS = 8  # tries, of ten minutes
_LAST = 2**62
_IS_HOPELESS = f"(kind != 'upload' AND tries >= {HOPELESS})"
_TABLE = """
CREATE TABLE IF NOT EXISTS tasks (
    bucket TEXT, name TEXT, kind TEXT NOT NULL, told TEXT NOT NULL, number INTEGER NOT NULL, due REAL NOT NULL,
    tries INTEGER NOT NULL, claimed REAL NOT NULL, done REAL, PRIMARY KEY (bucket, name)
)
"""
_SET_BACK = """
UPDATE tasks SET due = CASE WHEN due > :late THEN 0 ELSE due END,
claimed = CASE WHEN claimed > :late THEN 0 ELSE claimed END, done = min(done, :now)
WHERE due > :late OR claimed > :late OR done > :late
"""
_FORGET = """
DELETE FROM tasks WHERE done < :late AND (bucket != :bucket OR number <
(SELECT max(number) FROM tasks WHERE bucket = :bucket AND kind != 'upload'))
"""
_ADD = """
INSERT INTO tasks VALUES (?, ?, ?, ?, ?, 0, 0, 0, NULL)
ON CONFLICT DO UPDATE SET kind = excluded.kind, told = excluded.told, number = excluded.number, due = 0,
tries = CASE WHEN done IS NULL THEN min(tries, 1) ELSE 0 END, done = NULL
"""  # a try may be under way
_LEAVE = """
INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, 0, NULL)
ON CONFLICT DO UPDATE SET kind = excluded.kind, told = excluded.told, number = excluded.number, due = excluded.due,
tries = excluded.tries, done = NULL WHERE done IS NOT NULL OR (kind = 'upload' AND number < ?)
"""  # an upload of before the deletion would end without its file


class Kind(StrEnum):
    UPLOAD = "upload"
    DELETE = "delete"  # one entry
    FAMILY = "family"  # of a chunk behind a System segment
    CHUNK = "chunk"  # behind whatever System segment, of whatever engine
    TRACES = "traces"  # what a text had a part in


@dataclass(frozen=True)
class RemoteTask:
    kind: Kind
    # UPLOAD: engine, family, digest; DELETE: so too, of whatever engine; FAMILY: it, digests that stay;
    # CHUNK: border or group, chunk; TRACES: text, borders and groups that stay
    told: tuple[str, ...]
    number: int = 0
    tries: int = 0  # before this one; what was claimed counts, whether its end was told or not
    kept_as: str = field(default="", compare=False)  # by whoever told it: other versions may have had other names

    @property
    def hopeless(self) -> bool:
        """Of one entry that may not be deleted, as far as anybody has tried."""
        return self.kind is Kind.DELETE and self.tries >= HOPELESS

    @property
    def name(self) -> str:
        """An upload and the deletion of one entry take each other's place, and so do deletions of one family, and of a
        text's traces, whatever stays of it.
        """
        if self.kept_as:
            return self.kept_as
        if self.kind in (Kind.UPLOAD, Kind.DELETE):
            return self.told[-1]
        return " ".join((self.kind, *(self.told[:1] if self.kind in (Kind.FAMILY, Kind.TRACES) else self.told)))


def entry_task(kind: Kind, key: VariantKey) -> RemoteTask:
    return RemoteTask(kind, (key.fingerprint[:16], key.family, key.digest))


def _former(traces: RemoteTask) -> str:
    """The name under which is remembered what has gone of a text by other tasks than its last."""
    return f"{traces.name} before"


class Journal(FolderFile):
    """Threads and processes may share it. Methods raise StoreError."""

    def __init__(self, root: Path, bucket: str):
        super().__init__(root, _TABLE)
        self._bucket = bucket

    def add(self, tasks: Iterable[RemoteTask]) -> bool:
        """Whether there was room for all; there is always for deletions."""
        wanted = list(tasks)
        if not wanted:
            return True
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            number = self._next_number(connection)
            waiting = "SELECT count(*) FROM tasks WHERE bucket = ? AND kind = 'upload'"
            ((held,),) = connection.execute(waiting, (self._bucket,))
            kept = [task for task in wanted if task.kind is not Kind.UPLOAD or (held := held + 1) <= MOST_WAITING]
            kept = [self._with_waiting(connection, task) if task.kind is Kind.TRACES else task for task in kept]
            rows = ((task.name, task.kind, json.dumps(task.told), number + one) for one, task in enumerate(kept))
            connection.executemany(_ADD, ((self._bucket, *row) for row in rows))
        return len(kept) == len(wanted)

    def _next_number(self, connection: sqlite3.Connection) -> int:
        """Higher than all before, also where the clock was set back."""
        ((last,),) = connection.execute("SELECT max(number) FROM tasks WHERE bucket = ?", (self._bucket,))
        return max(time.time_ns(), (last or 0) + 1)

    def _with_waiting(self, connection: sqlite3.Connection, task: RemoteTask) -> RemoteTask:
        """And what is to go already: what stays by both. What has gone is remembered beside it."""
        found = "SELECT told, number, done FROM tasks WHERE bucket = ? AND name = ?"
        text, *stay = task.told
        for told, number, done in connection.execute(found, (self._bucket, task.name)).fetchall():
            before = json.loads(told)[1:]
            if done is None:
                task = replace(task, told=(text, *(one for one in stay if one in before)))
            elif not set(stay) <= set(before):
                for (older,) in connection.execute(
                    "SELECT told FROM tasks WHERE bucket = ? AND name = ?", (self._bucket, _former(task))
                ):
                    before = [one for one in before if one in json.loads(older)[1:]]
                row = (self._bucket, _former(task), task.kind, json.dumps((text, *before)), number, done)
                connection.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, 0, 0, 0, ?)", row)
        return task

    def take(self, kinds: Collection[Kind], most: int, *, hopeless: bool = False) -> list[RemoteTask]:
        """Claim those that are due, the oldest first. `hopeless`: of deletions that fail and fail, and of no others:
        single entries, or else walks, which may fail what goes with them, in turns by what has waited for longest.
        """
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = time.time()
            connection.execute(_SET_BACK, {"now": now, "late": now + AHEAD_S})
            connection.execute(_FORGET, {"bucket": self._bucket, "late": now - REMEMBERED_S})
            marks = ", ".join("?" * len(kinds))
            wanted = (
                f"SELECT name, kind, told, number, tries FROM tasks WHERE bucket = ? AND kind IN ({marks}) "
                "AND done IS NULL AND due <= ? AND claimed <= ? AND (kind != 'upload' OR number < ?) "
                f"AND {_IS_HOPELESS} = ?"
            )
            told = self._bucket, *kinds, now, now, self._first_deletion(connection), hopeless
            first = f"{wanted} ORDER BY due, kind = 'delete' LIMIT 1"
            if hopeless and (oldest := connection.execute(first, told).fetchone()):
                single = oldest[1] == Kind.DELETE
                wanted += f" AND kind {'=' if single else '!='} 'delete'"
                most = min(most, ALL_LOCKED) if single else most  # no more at once than may be denied in a row
            order = "due" if hopeless else "number"  # of the hopeless not the same ones first each time
            rows = connection.execute(f"{wanted} ORDER BY {order} LIMIT ?", (*told, most)).fetchall()
            claimed = [(now + CLAIM_S, self._bucket, name) for name, *_ in rows]
            # A try from here on: of who is killed in it nobody is told how far it got.
            claim = "UPDATE tasks SET claimed = ?, tries = tries + 1 WHERE bucket = ? AND name = ?"
            connection.executemany(claim, claimed)
        return [
            RemoteTask(Kind(kind), tuple(json.loads(told)), number, tries, name)
            for name, kind, told, number, tries in rows
        ]

    def _first_deletion(self, connection: sqlite3.Connection) -> int:
        """Number of the first that is not done, which no upload may overtake: it would be deleted by it. One that
        fails and fails (nobody may delete there) holds nobody up: what it deletes in the end is computed again.
        """
        ((first,),) = connection.execute(
            "SELECT min(number) FROM tasks WHERE bucket = ? AND kind != ? AND done IS NULL "
            "AND tries - (claimed > ?) < ?",  # the one under way may end it
            (self._bucket, Kind.UPLOAD, time.time(), HOPELESS),
        )
        return _LAST if first is None else int(first)

    def end(self, tasks: Sequence[RemoteTask]) -> None:
        """They are done, unless they were told anew meanwhile."""
        with self._open() as connection:
            for task in tasks:
                one = (self._bucket, task.name)
                connection.execute("UPDATE tasks SET claimed = 0 WHERE bucket = ? AND name = ?", one)
                if task.kind is Kind.UPLOAD:
                    wanted = "DELETE FROM tasks WHERE bucket = ? AND name = ? AND number = ?"
                    connection.execute(wanted, (*one, task.number))
                else:
                    wanted = "UPDATE tasks SET done = ? WHERE bucket = ? AND name = ? AND number = ?"
                    connection.execute(wanted, (time.time(), *one, task.number))

    def narrow(self, tasks: Sequence[RemoteTask], left: Iterable[RemoteTask]) -> None:
        """These deletions are done, but for what is `left` of them: of single entries that may not be deleted, numbered
        as what they are left of. They hold up no upload, and what is put again of the same texts stays; what waits
        under their names goes on, but for an upload that was told before.
        """
        wanted = {task.name: task for task in left}
        due = time.time() + jittered(FIRST_S)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            number = self._next_number(connection)
            rows = (
                (self._bucket, task.name, task.kind, json.dumps(task.told), number + one, due, HOPELESS, task.number)
                for one, task in enumerate(wanted.values())
            )
            connection.executemany(_LEAVE, rows)
        self.end([task for task in tasks if task.name not in wanted])
        self.postpone([task for task in tasks if task.name in wanted], HOPELESS)

    def rest(self, seconds: float) -> None:
        """Nothing is asked of single entries that may not be deleted for so long."""
        now = time.time()
        with self._open() as connection:
            connection.execute(
                "UPDATE tasks SET due = ? WHERE bucket = ? AND kind = ? AND tries >= ? AND done IS NULL AND due <= ? "
                "AND claimed <= ?",
                (now + seconds, self._bucket, Kind.DELETE, HOPELESS, now, now),
            )

    def postpone(self, tasks: Iterable[RemoteTask], least: int = 0) -> None:
        """`least`: tries they have had at least."""
        with self._open() as connection:
            for task in tasks:
                pause = jittered(min(LONGEST_S, FIRST_S * 2 ** min(task.tries, 16)))
                connection.execute(
                    "UPDATE tasks SET due = ?, claimed = 0, tries = max(tries, ?) WHERE bucket = ? AND name = ?",
                    (time.time() + pause, least, self._bucket, task.name),
                )

    def waiting(self) -> dict[Kind, int]:
        """How many are not done."""
        with self._open() as connection:
            counted = "SELECT kind, count(*) FROM tasks WHERE bucket = ? AND done IS NULL GROUP BY kind"
            return {Kind(kind): count for kind, count in connection.execute(counted, (self._bucket,))}

    def next_s(self) -> float | None:
        """Seconds until another task is due; None where there is none."""
        with self._open() as connection:
            ((due,),) = connection.execute(
                "SELECT min(max(due, claimed)) FROM tasks WHERE bucket = ? AND done IS NULL "
                "AND (kind != 'upload' OR number < ?)",
                (self._bucket, self._first_deletion(connection)),
            )
        return None if due is None else min(AHEAD_S, max(0.0, due - time.time()))

    def deletes_since(self, number: int) -> bool:
        """Whether any deletion was told after this one's, of whatever and however long ago."""
        told = "SELECT EXISTS (SELECT 1 FROM tasks WHERE bucket = ? AND kind != 'upload' AND number > ?)"
        with self._open() as connection:
            return bool(connection.execute(told, (self._bucket, number)).fetchone()[0])

    def has_gone(self, key: VariantKey, parts: Collection[str], since: int = 0) -> bool:
        """Whether an entry that these texts had a part in has been deleted here, or will be. `since`: by what was told
        after this number.
        """
        tasks = [
            entry_task(Kind.DELETE, key),
            RemoteTask(Kind.FAMILY, (key.family,)),
            *(RemoteTask(Kind.CHUNK, (one, key.chunk)) for one in (key.border, group_of(key.border))),
        ]
        traces = [RemoteTask(Kind.TRACES, (text,)) for text in parts if text != key.chunk]
        names = [*(task.name for task in (*tasks, *traces)), *map(_former, traces)]
        marks = ", ".join("?" * len(names))
        with self._open() as connection:
            found = connection.execute(
                f"SELECT kind, told FROM tasks WHERE bucket = ? AND kind != ? AND number > ? AND name IN ({marks}) "
                "AND (done IS NULL OR done >= ?)",
                (self._bucket, Kind.UPLOAD, since, *names, time.time() - REMEMBERED_S),
            ).fetchall()
        stay = ((kind, json.loads(told)[1:]) for kind, told in found)
        return not all(
            (kind == Kind.FAMILY and key.digest in those) or (kind == Kind.TRACES and is_within(key.border, those))
            for kind, those in stay
        )
