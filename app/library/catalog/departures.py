"""A log of texts that have gone, so that each machine can delete the KV that it has of them.

A row is written when what one machine knew of a text's KV is done (`orphans.py`), in the same transaction. The text may
have come again since: who reads the log looks. The oldest rows go where there are more than `MOST`; whoever was told of
fewer than all of those then finds out that he has missed some. Of its own rows a machine's disk has nothing to follow:
what it has of such a text by now has come since.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Column, Connection, String, Table, delete, func, insert, select

from app.library.catalog.database import Database, DatabasePart, batches
from app.library.catalog.locks import last_look
from app.library.catalog.tables import METADATA, AnyText, Id
from ragcache.host import FILE, private_file, private_folder, put

MOST = 1 << 18  # rows, of some 100 bytes
_PAGE = 4096
_PLACE = "place"  # the file with its name
_NAME = re.compile("[0-9a-f]{32}")
# Without foreign keys: rows outlive what they tell of.
DEPARTURES = Table(
    "departures",
    METADATA,
    Column("number", Id, primary_key=True),
    Column("token_hash", String(64), nullable=False),
    Column("border", AnyText, nullable=False),
    Column("place", String(32), nullable=False),  # of who has settled it
    sqlite_autoincrement=True,
)


@dataclass(frozen=True)
class Departure:
    """Of a text of collections, or of what was within the border of a key; without a hash of some collection, with all
    of its conversations.
    """

    number: int
    token_hash: str
    border: str
    place: str = ""


class CachePlace:
    """The name of a cache folder, random, in a file there; of no folder, or where it cannot be kept, there is none."""

    def __init__(self, folder: Path | None = None):
        self._folder = folder

    def name(self) -> str:
        """As it is now, made where there is none."""
        if self._folder is None:
            return ""
        file = self._folder / _PLACE
        with suppress(OSError):
            if found := _name_in(file):
                return found
            private_folder(self._folder)
            with FileLock(file.with_suffix(".lock"), mode=FILE):
                if found := _name_in(file):
                    return found
                fresh, made = file.with_suffix(".tmp"), uuid.uuid4().hex
                private_file(fresh)
                fresh.write_text(made, encoding="ascii")
                put(fresh, file)
                return made
        return ""  # then it is followed here too


def _name_in(file: Path) -> str:
    try:
        found = file.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    return found if _NAME.fullmatch(found) else ""


def depart(connection: Connection, place: CachePlace, hashes: Iterable[str], border: str = "") -> None:
    """At the end of a transaction: from here on no other one of PostgreSQL writes here before it ends, so that numbers
    become visible in their order.
    """
    if not (gone := sorted(hashes)):
        return
    told = {"border": border, "place": place.name()}
    if connection.dialect.name != "sqlite":
        last_look(connection)
    for batch in batches(gone):
        connection.execute(insert(DEPARTURES), [told | {"token_hash": one} for one in batch])
    last = connection.scalar(select(func.max(DEPARTURES.c.number))) or 0
    connection.execute(delete(DEPARTURES).where(DEPARTURES.c.number <= last - MOST))


class Departures(DatabasePart):
    def __init__(self, database: Database, place: CachePlace):
        super().__init__(database)
        self.place = place

    def behind(self, last: Departure | None) -> int | None:
        """The number from which on the log tells more to whoever was told as far as this one; None where some of that
        is in it no more: there is what its oldest row tells, and the rest. One that is not of this log, as of before
        the catalog was restored, is as good as none.
        """
        with self._database.reading() as connection:
            if last is not None and self._at(connection, last.number) == last:
                return last.number
            oldest = connection.scalar(select(func.min(DEPARTURES.c.number)))
        return None if oldest is not None and oldest > 1 else 0

    def after(self, number: int) -> list[Departure]:
        """The next ones, ascending."""
        query = select(DEPARTURES).where(DEPARTURES.c.number > number).order_by(DEPARTURES.c.number).limit(_PAGE)
        with self._database.reading() as connection:
            return [Departure(**row._mapping) for row in connection.execute(query)]

    def newest(self) -> Departure | None:
        with self._database.reading() as connection:
            return self._at(connection, connection.scalar(select(func.max(DEPARTURES.c.number))) or 0)

    def _at(self, connection: Connection, number: int) -> Departure | None:
        row = connection.execute(select(DEPARTURES).where(DEPARTURES.c.number == number)).one_or_none()
        return None if row is None else Departure(**row._mapping)
