"""What a server keeps beside the library: who may ask, what it still has to do, and what clients have it remember.

No row here refers to a key by a foreign key: keys are never deleted, and without any the owner is "".
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from app.library.catalog.serving_records import CacheTally
from app.library.catalog.tables import METADATA, AnyName, AnyText, Id, Json, Moment, PackedJson

_value = partial(Column, nullable=False)
_maybe = partial(Column, nullable=True)


KEYS = Table(
    "keys",
    METADATA,
    Column("id", AnyName(32), primary_key=True),
    _value("name", AnyName(200)),
    _value("digest", Text),  # of its secret, with what it was made by: digests.py
    _value("scopes", Json),
    _maybe("collections", Json),  # ids, which are never given twice; NULL: all
    _value("limits", Json),
    _value("created", Moment),
    _maybe("last_used", Moment),
    _maybe("revoked", Moment),
    _maybe("expires", Moment),
)


JOBS = Table(
    "jobs",
    METADATA,
    Column("id", AnyName(32), primary_key=True),
    _value("kind", String(16)),
    _value("collection_id", ForeignKey("collections.id", ondelete="CASCADE"), index=True),
    _value("owner", AnyName(32), index=True),
    _value("state", String(16)),
    _value("request", Json),
    _value("progress", Json),
    _maybe("error", AnyText),
    _value("attempts", Integer),
    _value("cancelling", Boolean),
    _maybe("process", AnyName(200)),
    _maybe("lease", String(32)),  # a new one for each claim
    _maybe("leased_until", Moment),
    _value("created", Moment),
    _maybe("started", Moment),
    _maybe("finished", Moment),
    Index(None, "state", "created"),
)


CONTEXT_CACHES = Table(
    "context_caches",
    METADATA,
    Column("id", AnyName(48), primary_key=True),
    _value("owner", AnyName(32), index=True),
    _value("border", AnyText),
    _value("model", String(128)),
    _value("created", Moment),
    _value("used", Moment),
    _maybe("expires", Moment, index=True),
    _value("pinned", Boolean),
    _value("nbytes", Id),
    # Last, since SQLite reads through what stands before a column.
    _value("chunks", PackedJson),
)


# What answers had of the cache, in steps of time that are kept for a while: cache_history.py.
CACHE_HISTORY = Table(
    "cache_history",
    METADATA,
    Column("collection_id", ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("step", Integer, primary_key=True, autoincrement=False),  # seconds
    Column("start", Id, primary_key=True, autoincrement=False),  # the first second of it
    *(_value(name, Float(53) if isinstance(zero, float) else Id) for name, zero in vars(CacheTally()).items()),
)


CHUNK_USES = Table(
    "chunk_uses",
    METADATA,
    Column("chunk_id", ForeignKey("chunks.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    _value("uses", Id, index=True),
    _value("reused", Id),  # tokens
    _value("used", Moment),
)
