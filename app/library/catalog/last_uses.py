"""When keys and context caches were last used: kept in memory, and written down behind those who use them, since a
commit waits for the disk. What was not written when a process was killed is lost.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta

from sqlalchemy import Column, Table, bindparam, or_, update

from app.errors import CatalogError
from app.library.catalog.database import Database, DatabasePart
from app.library.catalog.tables import now

BETWEEN = timedelta(minutes=1)  # two that are written down
_log = logging.getLogger(__name__)


class LastUses(DatabasePart):
    """Of the rows of a table, in its `column`. Threads share it; it holds a moment for each row at most."""

    def __init__(self, database: Database, table: Table, column: Column[datetime]):
        super().__init__(database)
        self._table, self._column = table, column
        self._lock = threading.Lock()
        self._waiting: dict[str, datetime] = {}

    def note(self, row_id: str, known: datetime | None) -> None:
        """It is used now, and `known` to have been used then. It waits for nobody."""
        moment = now()
        if known is None or moment - known >= BETWEEN:
            with self._lock:
                self._waiting[row_id] = moment

    def write(self) -> None:
        """What cannot be written now, since somebody else is writing, waits for the next time."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        own, moment = self._table.c.id == bindparam("row"), bindparam("moment", type_=self._column.type)
        due = or_(self._column.is_(None), self._column < moment)  # another process may have been later
        change = update(self._table).where(own, due).values({self._column.name: moment})
        try:
            with self._database.writing_at_once() as connection:
                connection.execute(change, [{"row": one, "moment": used} for one, used in waiting.items()])
        except CatalogError as error:
            _log.info("when %d of the %s were last used waits: %s", len(waiting), self._table.name, error)
            with self._lock:
                self._waiting = waiting | self._waiting
