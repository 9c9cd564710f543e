"""The steps of a change to a collection's chunks. Each runs inside a transaction that its caller holds.

A change starts with `lock`: ids and retirement numbers of one collection are then given out in the order in which they
become visible, which the indexes rely on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from app.errors import CatalogError
from app.library.catalog.columns import escape
from app.library.catalog.database import batches
from app.library.catalog.locks import check_held
from app.library.catalog.records import ChunkRecord, Collection, Removed, Vectors
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, RETIREMENTS


def source_key(source: str) -> str:
    return hashlib.sha256(escape(source).encode()).hexdigest()


def lock(connection: Connection, collection: Collection) -> None:
    """Take the collection for this transaction, as the caller knows it.

    Ids and vectors of another history do not belong into it: another process may have embedded it anew, or restored an
    older catalog, since the caller began.
    """
    columns = select(COLLECTIONS.c.uid, COLLECTIONS.c.embedder_fingerprint, COLLECTIONS.c.dimension)
    now = connection.execute(columns.where(COLLECTIONS.c.id == collection.id).with_for_update()).one_or_none()
    if now is None:
        raise CatalogError(f"collection {collection.id} is gone: somebody has deleted it meanwhile")
    if tuple(now) != (collection.uid, collection.embedder_fingerprint, collection.dimension):
        raise CatalogError(
            f"collection {collection.name!r} was embedded again or restored meanwhile by another process, and nothing "
            "of this change was written: run the command again"
        )
    check_held(connection, collection)


def retire(connection: Connection, collection_id: int, document_ids: Sequence[int]) -> tuple[int, set[str]]:
    """Delete the chunks of documents and write it down; returns how many, and their token hashes."""
    hashes: set[str] = set()
    count = 0
    for batch in batches(document_ids):
        of_these = CHUNKS.c.document_id.in_(batch), CHUNKS.c.collection_id == collection_id
        hashes.update(connection.scalars(select(CHUNKS.c.token_hash).where(*of_these)))
        gone = select(CHUNKS.c.collection_id, CHUNKS.c.id).where(*of_these).order_by(CHUNKS.c.id)
        connection.execute(insert(RETIREMENTS).from_select(["collection_id", "chunk_id"], gone))
        count += connection.execute(delete(CHUNKS).where(*of_these)).rowcount
    if count:
        last = select(func.max(RETIREMENTS.c.number)).where(RETIREMENTS.c.collection_id == collection_id)
        changed = {"live": COLLECTIONS.c.live - count, "retired": last.scalar_subquery()}
        connection.execute(update(COLLECTIONS).where(COLLECTIONS.c.id == collection_id).values(changed))
    return count, hashes


def add(
    connection: Connection, collection_id: int, document_id: int, chunks: Sequence[ChunkRecord], dimension: int
) -> tuple[int, ...]:
    """Insert a document's chunks, in order; returns their ids, ascending."""
    if not chunks:
        return ()
    rows = []
    for ordinal, chunk in enumerate(chunks):
        assert chunk.embedding.shape == (dimension,), f"chunk {ordinal}: {chunk.embedding.shape}, not ({dimension},)"
        rows.append(
            {
                "document_id": document_id,
                "collection_id": collection_id,
                "ordinal": ordinal,
                "start": chunk.start,
                "end": chunk.end,
                "text": chunk.text,
                "tokens": chunk.tokens,
                "token_hash": chunk.token_hash,
                "heading": chunk.heading,
                "pages": chunk.pages,
                "boxes": chunk.boxes,
                "embedding": pack(chunk.embedding),
                "spans": chunk.spans,
            }
        )
    ids = tuple(connection.scalars(insert(CHUNKS).returning(CHUNKS.c.id, sort_by_parameter_order=True), rows))
    assert list(ids) == sorted(ids)
    changed = {"live": COLLECTIONS.c.live + len(ids), "high": ids[-1]}
    connection.execute(update(COLLECTIONS).where(COLLECTIONS.c.id == collection_id).values(changed))
    return ids


def remove_documents(connection: Connection, collection_id: int, document_ids: Sequence[int]) -> Removed:
    """Documents with all that hangs on them. Those that are gone already are not counted."""
    chunks, hashes = retire(connection, collection_id, document_ids)
    documents = 0
    for batch in batches(document_ids):
        these = DOCUMENTS.c.id.in_(batch), DOCUMENTS.c.collection_id == collection_id
        documents += connection.execute(delete(DOCUMENTS).where(*these)).rowcount
    return Removed(documents, chunks, unused(connection, hashes))


def unused(connection: Connection, hashes: Iterable[str]) -> tuple[str, ...]:
    """Those of these token hashes that no chunk has any more."""
    orphans: list[str] = []
    for batch in batches(sorted(hashes)):
        used = set(connection.scalars(select(CHUNKS.c.token_hash).where(CHUNKS.c.token_hash.in_(batch)).distinct()))
        orphans += [token_hash for token_hash in batch if token_hash not in used]
    return tuple(orphans)


def pack(vector: Vectors) -> bytes:
    return vector.astype("<f4", copy=False).tobytes()
