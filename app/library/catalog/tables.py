"""The tables, with types of columns that hold any text a file may contain and mean the same in SQLite and PostgreSQL.

The rest of the program meets the frozen records of `records.py`, never these. Where another table points at a row that
can go, the database removes what hangs on it (ON DELETE CASCADE).

They are SQLAlchemy's plain tables: its mapper of classes, which nothing here needs, took a fifth of `ragcache ls`.
"""

from __future__ import annotations

import json
import re
import zlib
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

# SQLite counts only rows whose key is declared INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")
LARGEST_ID = (1 << 63) - 1  # that a database can be asked for
_MARK = "\x1a"
# Neither database stores lone surrogates, which stand for the odd bytes of a file name; PostgreSQL has no NUL either.
_HOSTILE = re.compile("[\x00\x1a\ud800-\udfff]")
_MARKED = re.compile("\x1a([0-9a-f]{4})")
_LEVEL = 3  # of zlib: a third of the time of the default for a tenth more bytes
# Every constraint has a name, so that a migration can drop it.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_numbered = partial(Table, sqlite_autoincrement=True)  # or SQLite gives out the keys of rows that are gone
_value = partial(Column, nullable=False)
_maybe = partial(Column, nullable=True)


def escape(text: str) -> str:
    """Text that every database takes; the same text unless it holds something hostile."""
    return _HOSTILE.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    return _MARKED.sub(lambda found: chr(int(found[1], 16)), text)


class AnyText(TypeDecorator[str]):
    """Any Python string, readable as it is in the database unless it holds something hostile."""

    impl: type[String] = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else unescape(value)


class AnyName(AnyText):
    """The same, of a bounded length: what a user types may be asked for, and is not there."""

    impl = String
    cache_ok = True


class Json(TypeDecorator[Any]):
    """A JSON value as ASCII text: it is never searched, and so it takes any string."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        if value == "[]":  # most of them, by the dozen in each question
            return []
        return None if value is None else json.loads(value)


class PackedText(TypeDecorator[str]):
    """A long text, compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(value.encode("utf-8", "surrogatepass"), _LEVEL)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else zlib.decompress(value).decode("utf-8", "surrogatepass")


class PackedJson(TypeDecorator[Any]):
    """A long JSON value, compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(json.dumps(value, separators=(",", ":")).encode(), _LEVEL)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(zlib.decompress(value))


class Moment(TypeDecorator[datetime]):
    """A point in time, in UTC: SQLite forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now() -> datetime:
    return datetime.now(UTC)


def _key(name: str = "id") -> Column[int]:
    return Column(name, Id, primary_key=True)


def _of(table: str, index: bool = False) -> Column[int]:
    """What a row belongs to, and goes with."""
    return Column(f"{table}_id", ForeignKey(f"{table}s.id", ondelete="CASCADE"), nullable=False, index=index or None)


COLLECTIONS = _numbered(
    "collections",
    METADATA,
    _key(),
    _value("uid", String(32), unique=True),
    _value("name", AnyName(200), unique=True),
    _value("embedder", AnyText),
    _value("embedder_fingerprint", String(128)),
    _value("dimension", Integer),
    _maybe("engine_fingerprint", String(128)),
    _maybe("system_hash", String(128)),
    _value("splitter", String(64)),
    _value("splitter_settings", Json),
    _maybe("retrieval", Json),  # what was learnt of how its chunks are found: app/library/fusion.py
    _maybe("fidelity", Json),  # how far answers over its KV are off: app/library/fidelity.py
    # These follow the chunks in the same transaction, so asking for them reads one row.
    _value("high", Id, default=0),  # the highest chunk id so far
    _value("retired", Id, default=0),  # the highest number of a retirement so far
    _value("live", Id, default=0),  # chunks that are there now
    _value("created", Moment, default=now),
)


DOCUMENTS = _numbered(
    "documents",
    METADATA,
    _key(),
    _of("collection"),
    _value("source", AnyText),
    _value("source_key", String(64)),  # sha256: a path can be longer than an index of PostgreSQL takes
    _value("content_hash", String(64)),
    _value("size", Id),
    _value("mtime_ns", Id),
    _value("kind", AnyName(32)),
    _value("title", AnyText),
    _value("state", String(16)),
    _maybe("error", AnyText),
    _value("attempts", Integer, default=0),
    _value("created", Moment, default=now),
    _value("updated", Moment, default=now),
    # Last, since SQLite reads through what stands before a column.
    _value("text", PackedText),
    _value("pages", PackedJson),
    _value("lines", PackedJson),
    UniqueConstraint("collection_id", "source_key"),
)


# Where documents stand in the order of their collection, and what they are computed behind: app/library/order.py. A
# table of its own, since a column behind the texts would be read through these.
STANDINGS = Table(
    "standings",
    METADATA,
    Column("document_id", ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    _of("collection"),
    _value("place", Float(53)),
    _value("behind", Json),  # documents, in order
    _value("opening", Integer),
    Index(None, "collection_id", "place"),
)


CHUNKS = _numbered(
    "chunks",
    METADATA,
    _key(),
    _of("document"),
    _of("collection"),
    _value("ordinal", Integer),
    _value("start", Integer),
    _value("end", Integer),
    _value("text", AnyText),
    _value("tokens", Integer),
    _value("token_hash", String(64)),
    _value("heading", Json),
    _value("pages", Json),
    _value("boxes", Json),
    _value("embedding", LargeBinary),  # float32, little-endian [dimension]
    # Where each of the pages and each of the boxes starts and ends in the document; of older chunks unknown.
    _maybe("spans", Json),
    UniqueConstraint("document_id", "ordinal"),
    Index(None, "collection_id", "id"),  # what an index has not seen yet, in order
    Index(None, "token_hash", "collection_id"),  # whether anybody still uses this KV
)


# What a question is compared with beside the chunk, in a table of their own: few of them are read, and the chunks' rows
# stay short. A chunk of before has none.
SENTENCES = Table(
    "sentences",
    METADATA,
    Column("chunk_id", ForeignKey("chunks.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    _value("vectors", LargeBinary),  # retriever/sentences.py
)


# Chunks that are gone, so that the indexes, which follow, can forget them.
RETIREMENTS = _numbered(
    "retirements",
    METADATA,
    _key("number"),
    _of("collection"),
    _value("chunk_id", Id),  # no foreign key: it points at what is no longer there
    Index(None, "collection_id", "number"),
)


CONVERSATIONS = Table(
    "conversations",
    METADATA,
    Column("id", AnyName(32), primary_key=True),
    _of("collection", index=True),
    _value("title", AnyText),
    _value("created", Moment, default=now),
    _value("updated", Moment, default=now),
    _value("owner", AnyName(32), server_default="", index=True),  # the key that began it, "" without keys
)


MESSAGES = _numbered(
    "messages",
    METADATA,
    _key(),
    _value("conversation_id", AnyName(32), ForeignKey("conversations.id", ondelete="CASCADE"), index=True),
    _value("role", String(16)),
    _value("content", AnyText),
    _value("citations", Json),
    _maybe("report", Json),
    _value("created", Moment, default=now),
    _maybe("support", Json),
    _maybe("notes", Json),
)

INGEST_RUNS = _numbered(
    "ingest_runs",
    METADATA,
    _key(),
    _of("collection", index=True),
    _value("started", Moment, default=now),
    _maybe("finished", Moment),
    _value("state", String(16)),
    _value("pid", Integer),
    _value("counts", Json),
)
