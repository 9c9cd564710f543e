"""Which KV variants the store holds for the chunks of a collection. The store is the truth of that; this is for totals,
and to know what can be pruned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, insert, select

from app.catalog.engine import Database, batches
from app.catalog.records import Collection, KvRecord
from app.catalog.tables import CHUNKS, KV_VARIANTS


class KvVariants:
    def __init__(self, database: Database):
        self._database = database

    def record(self, collection: Collection, variants: Sequence[KvRecord]) -> None:
        """Write down variants; one whose address is known gets its new values."""
        with self._database.writing() as connection:
            write_kv(connection, collection.id, variants)

    def forget(self, collection: Collection, addresses: Iterable[str]) -> None:
        """Variants that the store no longer holds."""
        with self._database.writing() as connection:
            _forget(connection, collection.id, addresses)

    def all(self, collection: Collection) -> list[KvRecord]:
        columns = [KV_VARIANTS.c[name] for name in KvRecord.__dataclass_fields__]
        query = select(*columns).where(KV_VARIANTS.c.collection_id == collection.id).order_by(KV_VARIANTS.c.id)
        with self._database.reading() as connection:
            return [KvRecord(**row._mapping) for row in connection.execute(query)]

    def live_hashes(self) -> set[str]:
        """Token hashes of all chunks of all collections: KV of any other can be pruned."""
        with self._database.reading() as connection:
            return set(connection.scalars(select(CHUNKS.c.token_hash).distinct()))


def write_kv(connection: Connection, collection_id: int, variants: Sequence[KvRecord]) -> None:
    """Part of a transaction that its caller holds."""
    # Of an address that comes twice the last counts.
    newest = {variant.address: variant for variant in variants}
    _forget(connection, collection_id, newest)
    rows = [{"collection_id": collection_id, **vars(variant)} for variant in newest.values()]
    if rows:
        connection.execute(insert(KV_VARIANTS), rows)


def _forget(connection: Connection, collection_id: int, addresses: Iterable[str]) -> None:
    for batch in batches(addresses):
        connection.execute(
            delete(KV_VARIANTS).where(KV_VARIANTS.c.collection_id == collection_id, KV_VARIANTS.c.address.in_(batch))
        )
