"""The tables. The rest of the program meets the frozen records of `records.py`, never these.

Where another table points at a row that can go, the database removes what hangs on it (ON DELETE CASCADE).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, LargeBinary, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.catalog.columns import AnyName, AnyText, Id, Json, Moment, PackedJson, PackedText, now

# Every constraint has a name, so that a migration can drop it.
NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# A key that SQLite would otherwise give out again after its row is gone.
NEVER_REUSED = {"sqlite_autoincrement": True}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMES)


class CollectionRow(Base):
    """`high`, `retired` and `live` follow the chunks in the same transaction, so asking for them reads one row."""

    __tablename__ = "collections"
    __table_args__ = NEVER_REUSED

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    name: Mapped[str] = mapped_column(AnyName(200), unique=True)
    embedder: Mapped[str] = mapped_column(AnyText)
    embedder_fingerprint: Mapped[str] = mapped_column(String(128))
    dimension: Mapped[int]
    engine_fingerprint: Mapped[str | None] = mapped_column(String(128))
    system_hash: Mapped[str | None] = mapped_column(String(128))
    splitter: Mapped[str] = mapped_column(String(64))
    splitter_settings: Mapped[Any] = mapped_column(Json)
    high: Mapped[int] = mapped_column(Id, default=0)  # the highest chunk id so far
    retired: Mapped[int] = mapped_column(Id, default=0)  # the highest number of a retirement so far
    live: Mapped[int] = mapped_column(Id, default=0)  # chunks that are there now
    created: Mapped[datetime] = mapped_column(Moment, default=now)


class DocumentRow(Base):
    __tablename__ = "documents"
    __table_args__ = (UniqueConstraint("collection_id", "source_key"), NEVER_REUSED)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    source: Mapped[str] = mapped_column(AnyText)
    source_key: Mapped[str] = mapped_column(
        String(64)
    )  # sha256: a path can be longer than an index of PostgreSQL takes
    content_hash: Mapped[str] = mapped_column(String(64))
    size: Mapped[int] = mapped_column(Id)
    mtime_ns: Mapped[int] = mapped_column(Id)
    kind: Mapped[str] = mapped_column(AnyName(32))
    title: Mapped[str] = mapped_column(AnyText)
    state: Mapped[str] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(AnyText)
    attempts: Mapped[int] = mapped_column(default=0)
    created: Mapped[datetime] = mapped_column(Moment, default=now)
    updated: Mapped[datetime] = mapped_column(Moment, default=now)
    # Last, since SQLite reads through what stands before a column.
    text: Mapped[str] = mapped_column(PackedText)
    pages: Mapped[Any] = mapped_column(PackedJson)
    lines: Mapped[Any] = mapped_column(PackedJson)


class ChunkRow(Base):
    __tablename__ = "chunks"
    __table_args__ = (
        UniqueConstraint("document_id", "ordinal"),
        Index(None, "collection_id", "id"),  # what an index has not seen yet, in order
        Index(None, "token_hash", "collection_id"),  # whether anybody still uses this KV
        NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    document_id: Mapped[int] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"))
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    start: Mapped[int]
    end: Mapped[int]
    text: Mapped[str] = mapped_column(AnyText)
    tokens: Mapped[int]
    token_hash: Mapped[str] = mapped_column(String(64))
    heading: Mapped[Any] = mapped_column(Json)
    pages: Mapped[Any] = mapped_column(Json)
    boxes: Mapped[Any] = mapped_column(Json)
    embedding: Mapped[bytes] = mapped_column(LargeBinary)  # float32, little-endian [dimension]
    # Where each of the pages and each of the boxes starts and ends in the document; of older chunks unknown.
    spans: Mapped[Any | None] = mapped_column(Json)


class RetirementRow(Base):
    """A chunk that is gone, so that the indexes, which follow, can forget it."""

    __tablename__ = "retirements"
    __table_args__ = (Index(None, "collection_id", "number"), NEVER_REUSED)

    number: Mapped[int] = mapped_column(Id, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    chunk_id: Mapped[int] = mapped_column(Id)  # no foreign key: it points at what is no longer there


class KvVariantRow(Base):
    __tablename__ = "kv_variants"
    __table_args__ = (
        UniqueConstraint("collection_id", "address"),
        Index(None, "token_hash", "collection_id"),
        NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    token_hash: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(128))
    fingerprint: Mapped[str] = mapped_column(String(128))
    nbytes: Mapped[int] = mapped_column(Id)


class ConversationRow(Base):
    __tablename__ = "conversations"

    id: Mapped[str] = mapped_column(AnyName(32), primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    title: Mapped[str] = mapped_column(AnyText)
    created: Mapped[datetime] = mapped_column(Moment, default=now)
    updated: Mapped[datetime] = mapped_column(Moment, default=now)


class MessageRow(Base):
    __tablename__ = "messages"
    __table_args__ = NEVER_REUSED

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    conversation_id: Mapped[str] = mapped_column(
        AnyName(32), ForeignKey("conversations.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[str] = mapped_column(String(16))
    content: Mapped[str] = mapped_column(AnyText)
    citations: Mapped[Any] = mapped_column(Json)
    report: Mapped[Any | None] = mapped_column(Json)
    created: Mapped[datetime] = mapped_column(Moment, default=now)


class IngestRunRow(Base):
    __tablename__ = "ingest_runs"
    __table_args__ = NEVER_REUSED

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    started: Mapped[datetime] = mapped_column(Moment, default=now)
    finished: Mapped[datetime | None] = mapped_column(Moment)
    state: Mapped[str] = mapped_column(String(16))
    pid: Mapped[int]
    counts: Mapped[Any] = mapped_column(Json)
