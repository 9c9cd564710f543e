"""What was ingested when, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sqlalchemy import insert, select, update

from app.library.catalog.columns import now
from app.library.catalog.database import DatabasePart
from app.library.catalog.records import Collection, IngestRun, RunState
from app.library.catalog.tables import INGEST_RUNS

_COLUMNS = [INGEST_RUNS.c[name] for name in IngestRun.__dataclass_fields__]


class IngestRuns(DatabasePart):
    def start(self, collection: Collection) -> int:
        """The id of a new run of this process. Call it inside `Catalog.alone`: whoever holds that lock knows that all
        others, on whatever machine, run no more; those that are still called running were killed, and are marked so."""
        own = INGEST_RUNS.c.collection_id == collection.id
        values = {"collection_id": collection.id, "state": "running", "pid": os.getpid(), "counts": {}}
        with self._database.writing() as connection:
            cut_off = update(INGEST_RUNS).where(own, INGEST_RUNS.c.state == "running")
            connection.execute(cut_off.values(state="interrupted"))
            made = connection.execute(insert(INGEST_RUNS).values(**values).returning(INGEST_RUNS.c.id))
            return int(made.scalar_one())

    def finish(self, run_id: int, state: RunState, counts: Mapping[str, int]) -> None:
        values = {"state": state, "counts": dict(counts), "finished": now()}
        with self._database.writing() as connection:
            connection.execute(update(INGEST_RUNS).where(INGEST_RUNS.c.id == run_id).values(**values))

    def newest(self, collection: Collection, limit: int = 20) -> list[IngestRun]:
        query = select(*_COLUMNS).where(INGEST_RUNS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(INGEST_RUNS.c.id.desc()).limit(limit))
            return [IngestRun(**row._mapping) for row in rows]
