"""Token hashes that no chunk has any more, as long as KV of them may be there, and of chunks that lose KV with them.

They are written in the transaction that takes the chunks away, and are settled when their KV has gone and that of the
others has come again. So a process that is killed between leaves the rest to the next one that works on the collection.
What a context cache leaves, `cache prune` does, as with collections that are gone.

With PostgreSQL two transactions do not see what the other takes away. So there each writes down what its own collection
has no more, and looks after its commit who has it still (`claimed`): the last to commit sees that nobody has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Boolean, Column, ColumnElement, Connection, String, Table, delete, insert, select, tuple_

from app.errors import CatalogError
from app.library.catalog.database import Database, DatabasePart, batches
from app.library.catalog.departures import CachePlace, depart
from app.library.catalog.locks import check_held, last_look
from app.library.catalog.records import Collection, Removed
from app.library.catalog.tables import CHUNKS, COLLECTIONS, METADATA, Id

log = logging.getLogger(__name__)
# Without a foreign key: a collection that is deleted leaves them too, and so does a context cache.
ORPHANS = Table(
    "orphans",
    METADATA,
    Column("collection_id", Id, primary_key=True, autoincrement=False),
    Column("token_hash", String(64), primary_key=True),
    Column("lost", Boolean, nullable=False),  # there is a chunk of it, whose KV was computed over an orphan
)


_ABANDONED = ORPHANS.c.collection_id.not_in(select(COLLECTIONS.c.id))


def orphaned(connection: Connection, collection_id: int, hashes: Iterable[str]) -> tuple[str, ...]:
    """Those of these token hashes that no chunk has any more, written down as left behind by this collection. Call
    `claimed` after the commit: with PostgreSQL others may have some of them.
    """
    own = CHUNKS.c.collection_id == collection_id
    found = _unused(connection, hashes, *([] if connection.dialect.name == "sqlite" else [own]))
    _write(connection, collection_id, found, lost=False)
    return found


def claimed(database: Database, collection: Collection, removed: Removed) -> Removed:
    """The same, after its commit, with those of its orphans that no chunk has. What others still have is not left
    behind; what several have lost is so by the first that looks then. In short turns, since others wait for each. Where
    that fails, the rest stays written down (`Orphans.left_by`): the documents are gone, and nobody can try it again.
    """
    if database.path is not None:
        return removed
    found: list[str] = []
    try:
        for batch in batches(removed.orphans):
            with database.writing() as connection:
                last_look(connection)
                claim = _claim(connection, collection.id, batch)
            found += claim
    except CatalogError as error:
        log.warning("whether others have the texts that have gone was not found out: %s", error)
    return replace(removed, orphans=tuple(found))


def left_by_cache(connection: Connection, cache_id: str, hashes: Iterable[str]) -> None:
    """Written down as left behind by a context cache that is deleted, whoever else has them."""
    _write(connection, _place(cache_id), set(hashes), lost=False)


def _place(cache_id: str) -> int:
    """Of a context cache among the ids of collections: below all of these."""
    return -1 - int(cache_id[-15:], 16)


def _claim(connection: Connection, collection_id: int, hashes: Sequence[str]) -> tuple[str, ...]:
    own = ORPHANS.c.collection_id == collection_id, ~ORPHANS.c.lost
    ours = set(connection.scalars(select(ORPHANS.c.token_hash).where(*own, ORPHANS.c.token_hash.in_(hashes))))
    gone = _unused(connection, ours)
    connection.execute(delete(ORPHANS).where(*own, ORPHANS.c.token_hash.in_(ours.difference(gone))))
    row = ORPHANS.c.collection_id, ORPHANS.c.token_hash
    theirs = select(*row).where(row[0] != collection_id, row[1].in_(gone), ~ORPHANS.c.lost)
    # Whoever has such a row locked is in a long change: who waited for that would keep all others out.
    connection.execute(delete(ORPHANS).where(tuple_(*row).in_(theirs.with_for_update(skip_locked=True))))
    return gone


def _write(connection: Connection, collection_id: int, hashes: Iterable[str], *, lost: bool) -> None:
    for batch in batches(sorted(hashes)):
        connection.execute(
            delete(ORPHANS).where(ORPHANS.c.collection_id == collection_id, ORPHANS.c.token_hash.in_(batch))
        )
        connection.execute(
            insert(ORPHANS), [{"collection_id": collection_id, "token_hash": one, "lost": lost} for one in batch]
        )


def _unused(connection: Connection, hashes: Iterable[str], *of: ColumnElement[bool]) -> tuple[str, ...]:
    """Those that no chunk has, or none of these."""
    query, found = select(CHUNKS.c.token_hash).where(*of).distinct(), list[str]()
    for batch in batches(sorted(hashes)):
        used = set(connection.scalars(query.where(CHUNKS.c.token_hash.in_(batch))))
        found += [token_hash for token_hash in batch if token_hash not in used]
    return tuple(found)


def _settle(connection: Connection, hashes: Iterable[str], which: ColumnElement[bool]) -> set[str]:
    """Of these rows those of these token hashes go -> those that were left behind."""
    gone = set[str]()
    for batch in batches(sorted(hashes)):
        these = which, ORPHANS.c.token_hash.in_(batch)
        rows = connection.execute(delete(ORPHANS).where(*these).returning(ORPHANS.c.token_hash, ORPHANS.c.lost))
        gone.update(token_hash for token_hash, lost in rows if not lost)
    return gone


class Orphans(DatabasePart):
    """Of a collection whose lock the caller holds (`Catalog.alone`). `place`: of this machine's KV."""

    def __init__(self, database: Database, place: CachePlace):
        super().__init__(database)
        self._here = place

    def of(self, collection: Collection) -> tuple[set[str], set[str]]:
        """What it has left behind, and the chunks that lose KV with that, or have lost it."""
        query = select(ORPHANS.c.token_hash, ORPHANS.c.lost).where(ORPHANS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {one for one, lost in rows if not lost}, {one for one, lost in rows if lost}

    def left_by(self, collection: Collection) -> set[str]:
        """What it has left behind and no chunk has, by a process that was killed too."""
        own = ORPHANS.c.collection_id == collection.id, ~ORPHANS.c.lost
        with self._database.reading() as connection:
            return set(_unused(connection, connection.scalars(select(ORPHANS.c.token_hash).where(*own))))

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

    def left(self) -> set[str]:
        """What whichever collections and context caches have left behind, and no chunk has."""
        with self._database.reading() as connection:
            return set(_unused(connection, connection.scalars(select(ORPHANS.c.token_hash).where(~ORPHANS.c.lost))))

    def settle(self, collection: Collection, hashes: Iterable[str], *, ended: bool = False) -> None:
        """All that is to be done about these is done here, and `departures` tell other machines, so many in a turn.
        `ended`: the collection has gone with all of its conversations.
        """
        own = ORPHANS.c.collection_id == collection.id
        for batch in [*batches(sorted(hashes)), *([[""]] if ended else [])]:
            with self._database.writing() as connection:
                check_held(connection, collection)
                depart(connection, self._here, _settle(connection, batch, own).union({""}.intersection(batch)))

    def settle_cache(self, cache_id: str, kept: Iterable[str] = ()) -> None:
        """All is done about what a context cache has left behind, but for these."""
        own = ORPHANS.c.collection_id == _place(cache_id)
        with self._database.writing() as connection:
            done = set(connection.scalars(select(ORPHANS.c.token_hash).where(own))).difference(kept)
            depart(connection, self._here, _settle(connection, done, own))

    def abandoned(self) -> set[str]:
        """What collections and context caches that are gone have left behind."""
        query = select(ORPHANS.c.token_hash).where(_ABANDONED, ~ORPHANS.c.lost)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def forget(self, hashes: Iterable[str]) -> None:
        """All is done about these of collections that are gone; nobody computes anew what they have lost."""
        with self._database.writing() as connection:
            connection.execute(delete(ORPHANS).where(_ABANDONED, ORPHANS.c.lost))
        for batch in batches(sorted(hashes)):
            with self._database.writing() as connection:
                if gone := _settle(connection, batch, _ABANDONED):
                    depart(connection, self._here, {"", *gone})
