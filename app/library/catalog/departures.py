"""A log of texts that have gone, so that each machine can delete the KV that it has of them.

A row is written when what one machine knew of a text's KV is done (`orphans.py`), in the same transaction. The text may
have come again since: who reads the log looks. The oldest rows go where there are more than `MOST`; whoever was told of
fewer than all of those then finds out that he has missed some.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Column, Connection, String, Table, delete, func, insert, select

from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.locks import last_look
from app.library.catalog.tables import METADATA, AnyText, Id

MOST = 1 << 18  # rows, of some 100 bytes
_PAGE = 4096
# Without foreign keys: rows outlive what they tell of.
DEPARTURES = Table(
    "departures",
    METADATA,
    Column("number", Id, primary_key=True),
    Column("token_hash", String(64), nullable=False),
    Column("border", AnyText, nullable=False),
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


def depart(connection: Connection, hashes: Iterable[str], border: str = "") -> None:
    """At the end of a transaction: from here on no other one of PostgreSQL writes here before it ends, so that numbers
    become visible in their order.
    """
    if not (gone := sorted(hashes)):
        return
    if connection.dialect.name != "sqlite":
        last_look(connection)
    for batch in batches(gone):
        connection.execute(insert(DEPARTURES), [{"token_hash": one, "border": border} for one in batch])
    last = connection.scalar(select(func.max(DEPARTURES.c.number))) or 0
    connection.execute(delete(DEPARTURES).where(DEPARTURES.c.number <= last - MOST))


class Departures(DatabasePart):
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
