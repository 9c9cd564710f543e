"""Documents: what an ingest writes, and what it asks before it reads a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    bindparam,
    case,
    func,
    insert,
    literal,
    select,
    type_coerce,
    update,
)

from app.errors import NotFound
from app.library.catalog.chunks import add, lock, remove_documents, retire, rows_of, source_key
from app.library.catalog.collections import write_splitter
from app.library.catalog.database import DatabasePart, batches, stored
from app.library.catalog.failures import catalog_failures
from app.library.catalog.order import stand
from app.library.catalog.orphans import claimed, orphaned
from app.library.catalog.records import (
    ChunkRecord,
    Collection,
    Document,
    DocumentLayout,
    DocumentRecord,
    FileState,
    Listed,
    Removed,
    Replaced,
    State,
)
from app.library.catalog.sentences import insert_sentences, parts
from app.library.catalog.tables import CHUNKS, DOCUMENTS, now
from app.library.order import Standing
from app.loaders.base import Line, Page

_COLUMNS = [DOCUMENTS.c[name] for name in Document.__dataclass_fields__]
_STATE = [DOCUMENTS.c[name] for name in FileState.__dataclass_fields__]


class Documents(DatabasePart):
    def states(self, collection: Collection) -> dict[str, FileState]:
        """All documents by source, in one query."""
        query = select(DOCUMENTS.c.source, *_STATE).where(DOCUMENTS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            return {source: FileState(*rest) for source, *rest in connection.execute(query)}

    def replace(
        self,
        collection: Collection,
        document: DocumentRecord,
        chunks: Sequence[ChunkRecord],
        *,
        bind: bool = False,
        standing: Standing | None = None,
    ) -> Replaced:
        """Make a document visible with its chunks, instead of its older version if there is one: one transaction. What
        is left of the sentences of a long one `sentences.add_rest` adds.

        `bind`: the splitter of this record, which cut it, is the collection's from now on. `standing`: its place in the
        order of the collection; without one it gets its place when its KV is computed.
        """
        assert all(document.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
        rows, values = rows_of(collection, chunks), _values(document)
        sentences = [chunk.sentences for chunk in chunks]
        at_once = parts(sentences)[0]
        with self._database.writing() as connection:
            lock(connection, collection)
            if bind:
                write_splitter(connection, collection)
            document_id, gone, hashes = _retired(connection, collection.id, document.source)
            document_id = _write(connection, collection.id, document_id, values, {"state": "ready", "error": None})
            stand(connection, collection.id, document_id, standing)
            ids = add(connection, collection.id, document_id, rows)
            insert_sentences(connection, zip(ids[at_once], sentences[at_once], strict=True))
            removed = Removed(0, gone, orphaned(connection, collection.id, hashes))
        return Replaced(document_id, ids, claimed(self._database, collection, removed))

    def fail(self, collection: Collection, document: DocumentRecord, error: str) -> Removed:
        """Write down that a file cannot be read; an older version goes, since the file no longer says that.

        Of `document` the text, pages and lines are not kept. `attempts` counts the failures of the same content.
        """
        empty = DocumentRecord(
            document.source, document.content_hash, document.size, document.mtime_ns, document.kind, document.title, ""
        )
        values = _values(empty)
        with self._database.writing() as connection:
            lock(connection, collection)
            document_id, gone, hashes = _retired(connection, collection.id, document.source)
            document_id = _write(connection, collection.id, document_id, values, {"state": "failed", "error": error})
            stand(connection, collection.id, document_id, None)
            removed = Removed(0, gone, orphaned(connection, collection.id, hashes))
        return claimed(self._database, collection, removed)

    def touch(self, stamps: Iterable[tuple[int, int, int]]) -> None:
        """(document id, size, mtime_ns) of files whose content is the same: the next ingest need not read them."""
        change = (
            update(DOCUMENTS)
            .where(DOCUMENTS.c.id == bindparam("document"))
            .values(size=bindparam("new_size"), mtime_ns=bindparam("new_mtime"))
        )
        rows = [{"document": one, "new_size": size, "new_mtime": mtime_ns} for one, size, mtime_ns in stamps]
        if rows:
            with self._database.writing() as connection:
                connection.execute(change, rows)

    def delete(self, collection: Collection, document_ids: Sequence[int]) -> Removed:
        """Delete documents with their chunks: one transaction. Ids that are not there are passed over."""
        with self._database.writing() as connection:
            lock(connection, collection)
            removed = remove_documents(connection, collection.id, document_ids)
        return claimed(self._database, collection, removed)

    def all(self, collection: Collection, state: State | None = None) -> list[Document]:
        """All, by source."""
        with self._database.reading() as connection:
            return [Document(**row._mapping) for row in connection.execute(_all(collection, state))]

    def listed(self, collection: Collection, state: State | None = None) -> list[Listed]:
        """The same with their numbers, for people to look at. The texts are not read."""
        query = _all(collection, state, DOCUMENTS.c.pages)
        with self._database.reading() as connection:
            return _listed(connection, query, CHUNKS.c.collection_id == collection.id)

    def page(
        self,
        collection: Collection,
        limit: int,
        *,
        after: int = 0,
        state: State | None = None,
        sources: Sequence[str] | None = None,
    ) -> list[Listed]:
        """The first ones by their ids, of those behind `after`, and of `sources` alone. Of others no rows are read."""
        own = DOCUMENTS.c.collection_id == collection.id, DOCUMENTS.c.id > after
        wanted = select(DOCUMENTS.c.id).where(*own).order_by(DOCUMENTS.c.id).limit(limit)
        if state is not None:
            wanted = wanted.where(DOCUMENTS.c.state == state)
        if sources is not None:
            wanted = wanted.where(DOCUMENTS.c.source_key.in_([source_key(one) for one in sources]))
        query = select(*_COLUMNS, DOCUMENTS.c.pages).where(DOCUMENTS.c.id.in_(wanted)).order_by(DOCUMENTS.c.id)
        with self._database.reading() as connection:
            return _listed(connection, query, CHUNKS.c.document_id.in_(wanted))

    def get(self, document_id: int) -> Document:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(DOCUMENTS.c.id == document_id)).one_or_none()
        if row is None:
            raise _missing(document_id)
        return Document(**row._mapping)

    def find(self, collection: Collection, source: str) -> Document | None:
        query = select(*_COLUMNS).where(
            DOCUMENTS.c.collection_id == collection.id, DOCUMENTS.c.source_key == source_key(source)
        )
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Document(**row._mapping)

    def contents(self, collection: Collection, scheme: str, document_ids: Sequence[int] | None = None) -> set[str]:
        """The hashes of the contents of documents whose sources are of the scheme: of these, or of all."""
        own = DOCUMENTS.c.collection_id == collection.id, DOCUMENTS.c.source.startswith(scheme, autoescape=True)
        query, found = select(DOCUMENTS.c.content_hash).where(*own), set[str]()
        with self._database.reading() as connection:
            if document_ids is None:
                return set(connection.scalars(query))
            for batch in batches(document_ids):
                found.update(connection.scalars(query.where(DOCUMENTS.c.id.in_(batch))))
        return found

    def held(self, hashes: Iterable[str], scheme: str) -> set[str]:
        """Those of these hashes of contents that documents have whose sources are of the scheme."""
        found = set[str]()
        with self._database.reading() as connection:
            for batch in batches(hashes):
                query = select(DOCUMENTS.c.content_hash).where(DOCUMENTS.c.content_hash.in_(batch))
                own = DOCUMENTS.c.state == "ready", DOCUMENTS.c.source.startswith(scheme, autoescape=True)
                found.update(connection.scalars(query.where(*own)))
        return found

    def layout(self, document_id: int) -> DocumentLayout:
        """Its whole text, its pages and lines."""
        text, pages, lines = self._value(document_id, DOCUMENTS.c.text, DOCUMENTS.c.pages, DOCUMENTS.c.lines)
        return DocumentLayout(text, _pages(pages), tuple(_line(one) for one in lines))

    def page_layout(self, document_id: int, number: int) -> DocumentLayout:
        """The same with the lines of that page alone."""
        wanted = DOCUMENTS.c.text, DOCUMENTS.c.pages, type_coerce(DOCUMENTS.c.lines, LargeBinary)
        with catalog_failures(self._database.where):
            text, pages, packed = self._value(document_id, *wanted)
            lines = tuple(_line(one) for one in _items(packed) if one[2] == number)
        return DocumentLayout(text, _pages(pages), lines)

    def text(self, document_id: int) -> str:
        """The whole of it."""
        return str(self._value(document_id, DOCUMENTS.c.text)[0])

    def _value(self, document_id: int, *wanted: ColumnElement[Any]) -> Sequence[Any]:
        with self._database.reading() as connection:
            row = connection.execute(select(*wanted).where(DOCUMENTS.c.id == document_id)).one_or_none()
        if row is None:
            raise _missing(document_id)
        return row


def _pages(stored: Iterable[Sequence[Any]]) -> tuple[Page, ...]:
    return tuple(Page(*page) for page in stored)


def _line(stored: Sequence[Any]) -> Line:
    start, end, page, (x0, y0, x1, y1) = stored
    return Line(start, end, page, (x0, y0, x1, y1))


def _items(packed: bytes) -> Iterator[Any]:
    """Of a list, as PackedJson stores it, one after the other: all at once take ten times the room of its text."""
    text, place, decode = zlib.decompress(packed).decode(), 1, JSONDecoder().raw_decode
    if text[:1] + text[-1:] != "[]":
        raise JSONDecodeError("no list", text[:10], 0)
    while place < len(text) - 1:
        item, place = decode(text, place)
        yield item
        place += 1  # a comma


def _all(collection: Collection, state: State | None, *more: Column[Any]) -> Select[*tuple[Any, ...]]:
    query = select(*_COLUMNS, *more).where(DOCUMENTS.c.collection_id == collection.id).order_by(DOCUMENTS.c.source)
    return query if state is None else query.where(DOCUMENTS.c.state == state)


def _listed(connection: Connection, query: Select[*tuple[Any, ...]], of_chunks: ColumnElement[bool]) -> list[Listed]:
    counts = select(CHUNKS.c.document_id, func.count(), func.sum(CHUNKS.c.tokens)).where(of_chunks)
    rows = connection.execute(counts.group_by(CHUNKS.c.document_id))
    sizes = {document_id: (int(chunks), int(tokens)) for document_id, chunks, tokens in rows}
    return [
        Listed(Document(*values), *sizes.get(values[0], (0, 0)), len(pages))
        for *values, pages in connection.execute(query)
    ]


def _missing(document_id: int) -> NotFound:
    return NotFound(f"no document {document_id}: `ragcache ls` shows those that there are")


def _retired(connection: Connection, collection_id: int, source: str) -> tuple[int | None, int, set[str]]:
    """The older version's id, how many chunks of it have gone, and their token hashes."""
    own = DOCUMENTS.c.collection_id == collection_id, DOCUMENTS.c.source_key == source_key(source)
    document_id = connection.scalar(select(DOCUMENTS.c.id).where(*own))
    return (None, 0, set()) if document_id is None else (document_id, *retire(connection, collection_id, [document_id]))


def _values(document: DocumentRecord) -> dict[str, Any]:
    """Of its row, what is long as it is stored: it is packed before the transaction."""
    pages = [(page.number, page.label, page.start, page.end) for page in document.pages]
    lines = [(line.start, line.end, line.page, line.box) for line in document.lines]
    long = {"text": document.text, "pages": pages, "lines": lines}
    packed = {name: literal(stored(DOCUMENTS.c[name], value), LargeBinary()) for name, value in long.items()}
    return vars(document) | packed


def _write(
    connection: Connection,
    collection_id: int,
    document_id: int | None,
    document: dict[str, Any],
    state: dict[str, Any],
) -> int:
    """Insert the row, or give it its new values; its id stays."""
    values = document | {"updated": now(), **state}
    if document_id is not None:
        again = case((DOCUMENTS.c.content_hash == document["content_hash"], DOCUMENTS.c.attempts + 1), else_=1)
        values["attempts"] = again if state["state"] == "failed" else 0
        connection.execute(update(DOCUMENTS).where(DOCUMENTS.c.id == document_id).values(**values))
        return document_id
    new = {"collection_id": collection_id, "source_key": source_key(document["source"])}
    values |= new | {"attempts": int(state["state"] == "failed")}
    return int(connection.execute(insert(DOCUMENTS).values(**values).returning(DOCUMENTS.c.id)).scalar_one())
