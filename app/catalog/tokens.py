"""The token counts and hashes of stored chunks, when another tokenizer reads them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, update

from app.catalog.changes import lock
from app.catalog.engine import Database
from app.catalog.records import Collection
from app.catalog.tables import CHUNKS


def retokenize(database: Database, collection: Collection, chunks: Sequence[tuple[int, int, str]]) -> None:
    """(chunk id, tokens, token hash) of chunks of one collection: one transaction."""
    rows = [{"chunk": one, "count": tokens, "hash": token_hash} for one, tokens, token_hash in chunks]
    if not rows:
        return
    change = update(CHUNKS).where(CHUNKS.c.id == bindparam("chunk"))
    with database.writing() as connection:
        lock(connection, collection)
        connection.execute(change.values(tokens=bindparam("count"), token_hash=bindparam("hash")), rows)
