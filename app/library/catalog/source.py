"""The chunks of one collection as the indexes follow them, and which of them a question may find.

A filter that can match nothing is a mistake, and told as one: an answer without any chunk would look like an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import PurePath

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, func, or_, select

from app.errors import CatalogError, NotFound
from app.library.catalog.chunks import pages, source_key
from app.library.catalog.database import Database, batches
from app.library.catalog.records import Collection
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, LARGEST_ID, RETIREMENTS, SENTENCES
from retriever import IntArray
from retriever.sentences import Packed
from retriever.source import Batch, Position, Source, Where
from splitter.base import below_headings

# Made once: to put a statement together takes longer than to run it. A collection that was embedded again since has
# none, as they are another model's.
_OWN = (COLLECTIONS.c.id == bindparam("collection"), COLLECTIONS.c.uid == bindparam("uid"))
_SENTENCES = select(SENTENCES.c.chunk_id, SENTENCES.c.vectors).where(
    SENTENCES.c.chunk_id.in_(bindparam("chunks", expanding=True)), exists().where(*_OWN)
)
MOST_NAMED = 200  # characters of a title that each chunk is found by; older catalogs have them as long as a book
_POSITION = select(COLLECTIONS.c.high, COLLECTIONS.c.retired, COLLECTIONS.c.live, COLLECTIONS.c.uid).where(
    COLLECTIONS.c.id == bindparam("collection")
)
DOCUMENT, KIND, SOURCE = "document", "kind", "source"
FILTERS = (DOCUMENT, KIND, SOURCE)
MOST = 30_000  # values: a statement takes 32,766 in SQLite, and 65,535 in PostgreSQL
# Sources, for those that look like one that is not there: comparing names takes its time, and whole paths much more.
LOOKED_THROUGH, COMPARED = 10_000, 500


class CatalogSource(Source):
    """Filters: `document` (ids or sources), `source`, and `kind`, what the loader took the document for."""

    def __init__(self, database: Database, collection: Collection):
        self._database = database
        self._collection = collection

    @property
    def dimension(self) -> int:
        return self._collection.dimension

    def position(self) -> Position:
        with self._database.reading() as connection:
            row = connection.execute(_POSITION, {"collection": self._collection.id}).one_or_none()
        if row is None or row.uid != self._collection.uid:
            raise CatalogError(f"collection {self._collection.name!r} was deleted or embedded again: open it anew")
        return Position(row.high, row.retired, row.live)

    def added(self, after: int, batch: int = 4096) -> Iterator[Batch]:
        query = (
            select(
                CHUNKS.c.id,
                CHUNKS.c.text,
                CHUNKS.c.heading,
                func.substr(DOCUMENTS.c.title, 1, MOST_NAMED, type_=DOCUMENTS.c.title.type).label("title"),
                CHUNKS.c.embedding,
            )
            .join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id)
            .where(CHUNKS.c.collection_id == self._collection.id, exists().where(*_OWN))
            .params(collection=self._collection.id, uid=self._collection.uid)
        )
        for rows in pages(self._database, query, CHUNKS.c.id, after, batch):
            vectors = np.frombuffer(b"".join(row.embedding for row in rows), dtype="<f4")
            yield (
                np.array([row.id for row in rows], dtype=np.int64),
                [_named(row.title, row.heading, row.text) for row in rows],
                vectors.reshape(len(rows), self.dimension).astype(np.float32),
            )

    def sentences(self, ids: IntArray) -> list[Packed | None]:
        found: dict[int, Packed] = {}
        own = {"collection": self._collection.id, "uid": self._collection.uid}
        with self._database.reading() as connection:
            for part in batches(ids.tolist()):
                rows = connection.execute(_SENTENCES, own | {"chunks": part}).all()
                found.update((chunk, packed) for chunk, packed in rows)
        return [found.get(one) for one in ids.tolist()]

    def retired(self, after: int, most: int = 4096) -> list[tuple[int, int]]:
        query = (
            select(RETIREMENTS.c.number, RETIREMENTS.c.chunk_id)
            .where(RETIREMENTS.c.collection_id == self._collection.id, RETIREMENTS.c.number > after)
            .order_by(RETIREMENTS.c.number)
            .limit(most)
        )

        with self._database.reading() as connection:
            return [(row.number, row.chunk_id) for row in connection.execute(query)]

    def lost(self, after: int) -> int:
        """How many of its chunks were retired with a number above `after`: numbers count over all collections."""
        own = RETIREMENTS.c.collection_id == self._collection.id
        query = select(func.count()).select_from(RETIREMENTS).where(own, RETIREMENTS.c.number > after)
        with self._database.reading() as connection:
            return connection.scalar(query) or 0

    def live_ids(self, where: Where) -> IntArray:
        query = select(CHUNKS.c.id).where(CHUNKS.c.collection_id == self._collection.id).order_by(CHUNKS.c.id)
        with self._database.reading() as connection:
            if where:
                chosen = condition(connection, self._collection, where)
                query = query.join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id).where(chosen)
            return np.fromiter(connection.scalars(query), dtype=np.int64)


def _named(title: str, heading: Sequence[str], text: str) -> str:
    """What a chunk is found by: its document's title counts, and its headings."""
    return below_headings(heading if title in heading else [title, *heading] if title else heading, text)


def condition(connection: Connection, collection: Collection, where: Where) -> ColumnElement[bool]:
    """Of documents. Raises CatalogError for a name or a value that the collection does not have."""
    unknown = sorted(set(where) - set(FILTERS))
    if unknown:
        raise CatalogError(f"no filter {unknown[0]!r}: choose from {', '.join(FILTERS)}")
    given = sum(map(len, where.values()))
    if given > MOST:
        raise CatalogError(
            f"filters of {given:,} values: a question can have {MOST:,}. Put the documents into a collection of their "
            "own"
        )
    return and_(*(_one(connection, collection, key, values) for key, values in where.items()))


def _one(connection: Connection, collection: Collection, key: str, values: Sequence[object]) -> ColumnElement[bool]:
    if isinstance(values, str) or not values:
        raise CatalogError(f"the filter {key!r} is {values!r}: give a list of one value or more, or leave it out")
    own = DOCUMENTS.c.collection_id == collection.id
    if key == KIND:
        return _of_kind(connection, own, values)
    sources = {value: source_key(value) for value in values if isinstance(value, str)}
    ids = [value for value in values if isinstance(value, int) and 0 < value <= LARGEST_ID] if key == DOCUMENT else []
    chosen = or_(DOCUMENTS.c.source_key.in_(sources.values()), DOCUMENTS.c.id.in_(ids))
    found = connection.execute(select(DOCUMENTS.c.id, DOCUMENTS.c.source_key).where(own, chosen)).all()
    there = {row.id for row in found} | {row.source_key for row in found}
    for value in values:
        known = sources[value] if isinstance(value, str) else value if key == DOCUMENT else None
        if known not in there:
            raise NotFound(f"no document {value!r} in collection {collection.name!r}{_like(connection, own, value)}")
    return chosen


def _of_kind(connection: Connection, own: ColumnElement[bool], values: Sequence[object]) -> ColumnElement[bool]:
    kinds = set(connection.scalars(select(DOCUMENTS.c.kind).where(own, DOCUMENTS.c.state == "ready").distinct()))
    for value in values:
        if value not in kinds:
            raise NotFound(f"no document of the kind {value!r}; there are: {', '.join(sorted(kinds)) or 'none yet'}")
    chosen: ColumnElement[bool] = DOCUMENTS.c.kind.in_([str(value) for value in values])
    return chosen


def _like(connection: Connection, own: ColumnElement[bool], value: object) -> str:
    sources = connection.scalars(select(DOCUMENTS.c.source).where(own).limit(LOOKED_THROUGH)).all()
    # A file name alone is the most frequent mistake: sources are whole paths.
    near = [one for one in sources if one.endswith(f"/{value}")] or _alike(str(value), sources[:COMPARED])
    return f"; there is: {', '.join(near[:3])}" if near else ": `ragcache ls -c COLLECTION` shows those that there are"


def _alike(value: str, sources: Sequence[str]) -> list[str]:
    """By their file names."""
    names = [PurePath(one).name for one in sources]
    near = get_close_matches(PurePath(value).name, dict.fromkeys(names))
    alike = [(near.index(name), one) for name, one in zip(names, sources, strict=True) if name in near]
    return [one for _, one in sorted(alike)]
