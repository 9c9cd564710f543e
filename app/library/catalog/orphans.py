"""Token hashes that no chunk has any more, as long as KV of them may be there, and of chunks that lose KV with them.

They are written in the transaction that takes the chunks away, and are settled when their KV has gone and that of the
others has come again. So a process that is killed between leaves the rest to the next one that works on the collection.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Boolean, Column, Connection, String, Table, delete, insert, select

from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.locks import check_held, last_look
from app.library.catalog.records import Collection
from app.library.catalog.tables import CHUNKS, COLLECTIONS, METADATA, Id

# Without a foreign key: a collection that is deleted leaves them too.
ORPHANS = Table(
    "orphans",
    METADATA,
    Column("collection_id", Id, primary_key=True, autoincrement=False),
    Column("token_hash", String(64), primary_key=True),
    Column("lost", Boolean, nullable=False),  # there is a chunk of it, whose KV was computed over an orphan
)


_ABANDONED = ORPHANS.c.collection_id.not_in(select(COLLECTIONS.c.id))


def orphaned(connection: Connection, collection_id: int, hashes: Iterable[str]) -> tuple[str, ...]:
    """Those of these token hashes that no chunk has any more, written down as left behind by this collection. Last in a
    transaction: others that delete chunks wait for its end.
    """
    if not (gone := sorted(hashes)):
        return ()
    last_look(connection)
    found = _unused(connection, gone)
    _write(connection, collection_id, found, lost=False)
    return found


def _write(connection: Connection, collection_id: int, hashes: Iterable[str], *, lost: bool) -> None:
    for batch in batches(sorted(hashes)):
        connection.execute(
            delete(ORPHANS).where(ORPHANS.c.collection_id == collection_id, ORPHANS.c.token_hash.in_(batch))
        )
        connection.execute(
            insert(ORPHANS), [{"collection_id": collection_id, "token_hash": one, "lost": lost} for one in batch]
        )


def _unused(connection: Connection, hashes: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for batch in batches(sorted(hashes)):
        used = set(connection.scalars(select(CHUNKS.c.token_hash).where(CHUNKS.c.token_hash.in_(batch)).distinct()))
        found += [token_hash for token_hash in batch if token_hash not in used]
    return tuple(found)


class Orphans(DatabasePart):
    """Of a collection whose lock the caller holds (`Catalog.alone`)."""

    def of(self, collection: Collection) -> tuple[set[str], set[str]]:
        """What it has left behind, and the chunks that lose KV with that, or have lost it."""
        query = select(ORPHANS.c.token_hash, ORPHANS.c.lost).where(ORPHANS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {one for one, lost in rows if not lost}, {one for one, lost in rows if lost}

    def lose(self, collection: Collection, hashes: Iterable[str]) -> None:
        """Those of its chunks, of these token hashes, are about to lose KV."""
        if not (wanted := sorted(hashes)):
            return
        own, found = select(CHUNKS.c.token_hash).where(CHUNKS.c.collection_id == collection.id).distinct(), set[str]()
        with self._database.writing() as connection:
            check_held(connection, collection)
            for batch in batches(wanted):
                found.update(connection.scalars(own.where(CHUNKS.c.token_hash.in_(batch))))
            _write(connection, collection.id, found, lost=True)

    def unused(self, hashes: Iterable[str]) -> set[str]:
        """Those of these token hashes that no chunk of any collection has."""
        with self._database.reading() as connection:
            return set(_unused(connection, hashes))

    def settle(self, collection: Collection, hashes: Iterable[str]) -> None:
        """All that is to be done about these is done."""
        if not (done := sorted(hashes)):
            return
        with self._database.writing() as connection:
            check_held(connection, collection)
            for batch in batches(done):
                own = ORPHANS.c.collection_id == collection.id, ORPHANS.c.token_hash.in_(batch)
                connection.execute(delete(ORPHANS).where(*own))

    def abandoned(self) -> set[str]:
        """What collections that are gone have left behind."""
        query = select(ORPHANS.c.token_hash).where(_ABANDONED, ~ORPHANS.c.lost)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def forget(self, hashes: Iterable[str]) -> None:
        """All is done about these of collections that are gone; nobody computes anew what they have lost."""
        with self._database.writing() as connection:
            connection.execute(delete(ORPHANS).where(_ABANDONED, ORPHANS.c.lost))
            for batch in batches(sorted(hashes)):
                connection.execute(delete(ORPHANS).where(_ABANDONED, ORPHANS.c.token_hash.in_(batch)))
