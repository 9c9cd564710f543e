"""The order of a collection's documents, and what each is computed behind: app/library/order.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from app.library.catalog.chunks import lock
from app.library.catalog.database import DatabasePart, batches
from app.library.catalog.records import Collection
from app.library.catalog.tables import CHUNKS, STANDINGS
from app.library.order import Neighbour, Standing

_LENGTHS = select(CHUNKS.c.document_id, func.count()).group_by(CHUNKS.c.document_id)
_STANDING = [STANDINGS.c[name] for name in ("place", "behind", "opening")]


def stand(connection: Connection, collection_id: int, document_id: int, standing: Standing | None) -> None:
    """Of a document that is written in this transaction; None is no place."""
    connection.execute(delete(STANDINGS).where(STANDINGS.c.document_id == document_id))
    if standing is not None:
        values = {"place": standing.place, "behind": list(standing.behind), "opening": standing.opening}
        connection.execute(insert(STANDINGS).values(document_id=document_id, collection_id=collection_id, **values))


class Order(DatabasePart):
    def standing(self, document_id: int) -> Standing | None:
        """None where it has no place, or is gone."""
        query = select(*_STANDING).where(STANDINGS.c.document_id == document_id)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _standing(*row)

    def places(self, documents: Iterable[int]) -> dict[int, float]:
        """Of those that have one."""
        query, found = select(STANDINGS.c.document_id, STANDINGS.c.place), dict[int, float]()
        with self._database.reading() as connection:
            for part in batches(sorted(set(documents))):
                rows = connection.execute(query.where(STANDINGS.c.document_id.in_(part)))
                found.update((row.document_id, row.place) for row in rows)
        return found

    def neighbours(
        self, collection: Collection, chunk_ids: Sequence[int], most: int | None
    ) -> list[tuple[int, Neighbour]]:
        """The documents of these chunks that have a place and at most so many chunks, each with its chunk."""
        of_chunk = select(CHUNKS.c.id, CHUNKS.c.document_id).where(CHUNKS.c.id.in_(chunk_ids))
        with self._database.reading() as connection:
            documents: dict[int, int] = {row.id: row.document_id for row in connection.execute(of_chunk)}
            query = select(STANDINGS.c.document_id, *_STANDING).where(
                STANDINGS.c.collection_id == collection.id, STANDINGS.c.document_id.in_(set(documents.values()))
            )
            stood = {one: _standing(*rest) for one, *rest in connection.execute(query)}
            lengths = _lengths(connection, {one for of, found in stood.items() for one in (of, *found.behind)})
        found = []
        for chunk in chunk_ids:
            document = documents.get(chunk, 0)
            if document in stood and 0 < (length := lengths.get(document, 0)) <= (most or length):
                standing = stood[document]
                before = tuple(lengths.get(one, 0) for one in standing.behind)
                found.append((chunk, Neighbour(document, length, standing, before)))
        return found

    def after(self, collection: Collection, place: float) -> float | None:
        """The next place that is taken."""
        own = STANDINGS.c.collection_id == collection.id, STANDINGS.c.place > place
        with self._database.reading() as connection:
            found: float | None = connection.scalar(select(func.min(STANDINGS.c.place)).where(*own))
        return found

    def last(self, collection: Collection) -> float | None:
        """The highest place that is taken."""
        query = select(func.max(STANDINGS.c.place)).where(STANDINGS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            found: float | None = connection.scalar(query)
        return found

    def spread(self, collection: Collection) -> None:
        """Give all documents new places in the same order, with room between them."""
        own = select(STANDINGS.c.document_id).where(STANDINGS.c.collection_id == collection.id)
        with self._database.writing() as connection:
            lock(connection, collection)
            ids = connection.scalars(own.order_by(STANDINGS.c.place, STANDINGS.c.document_id))
            rows = [{"document": one, "new": float(place)} for place, one in enumerate(ids)]
            if rows:
                change = update(STANDINGS).where(STANDINGS.c.document_id == bindparam("document"))
                connection.execute(change.values(place=bindparam("new")), rows)

    def set(self, collection: Collection, document_id: int, standing: Standing) -> None:
        with self._database.writing() as connection:
            lock(connection, collection)
            stand(connection, collection.id, document_id, standing)

    def loose(self, collection: Collection) -> list[tuple[int, int]]:
        """Documents with chunks that have no place, as they came, and how many chunks each has."""
        own = CHUNKS.c.collection_id == collection.id, STANDINGS.c.place.is_(None)
        query = _LENGTHS.outerjoin(STANDINGS, STANDINGS.c.document_id == CHUNKS.c.document_id).where(*own)
        with self._database.reading() as connection:
            return [(one, count) for one, count in connection.execute(query.order_by(CHUNKS.c.document_id))]

    def holding(self, collection: Collection, hashes: Iterable[str]) -> list[int]:
        """The documents that have chunks of these token hashes."""
        query = select(CHUNKS.c.document_id).where(CHUNKS.c.collection_id == collection.id).distinct()
        found = set[int]()
        with self._database.reading() as connection:
            for part in batches(sorted(hashes)):
                found.update(connection.scalars(query.where(CHUNKS.c.token_hash.in_(part))))
        return sorted(found)

    def vectors(self, document_id: int) -> list[bytes]:
        """Of its chunks, in their order, each as the catalog keeps it."""
        query = select(CHUNKS.c.embedding).where(CHUNKS.c.document_id == document_id).order_by(CHUNKS.c.ordinal)
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def lengths(self, documents: Iterable[int]) -> dict[int, int]:
        """In chunks, of those that have any."""
        with self._database.reading() as connection:
            return _lengths(connection, set(documents))

    def texts(self, documents: Iterable[int]) -> dict[int, list[str]]:
        """Of the chunks of these documents, in their order."""
        query = select(CHUNKS.c.document_id, CHUNKS.c.text).order_by(CHUNKS.c.document_id, CHUNKS.c.ordinal)
        found: dict[int, list[str]] = {}
        with self._database.reading() as connection:
            for part in batches(list(documents)):
                for document, text in connection.execute(query.where(CHUNKS.c.document_id.in_(part))):
                    found.setdefault(document, []).append(text)
        return found

    def ending(self, document_id: int, most: int) -> list[str]:
        """The texts of its last chunks, so many, in their order."""
        query = select(CHUNKS.c.text).where(CHUNKS.c.document_id == document_id).order_by(CHUNKS.c.ordinal.desc())
        with self._database.reading() as connection:
            return list(connection.scalars(query.limit(most)))[::-1]


def _standing(place: float, behind: Sequence[int], opening: int) -> Standing:
    return Standing(place, tuple(behind), opening)


def _lengths(connection: Connection, documents: Iterable[int]) -> dict[int, int]:
    """In chunks."""
    found: dict[int, int] = {}
    for part in batches(sorted(documents)):
        rows = connection.execute(_LENGTHS.where(CHUNKS.c.document_id.in_(part)))
        found.update((document, count) for document, count in rows)
    return found
