"""Column types that hold any text a file may contain, and mean the same in SQLite and PostgreSQL."""

from __future__ import annotations

import json
import re
import zlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, LargeBinary, String, Text, TypeDecorator

# SQLite counts only rows whose key is declared INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")

_MARK = "\x1a"
# Neither database stores lone surrogates, which stand for the odd bytes of a file name; PostgreSQL has no NUL either.
_HOSTILE = re.compile("[\x00\x1a\ud800-\udfff]")
_MARKED = re.compile("\x1a([0-9a-f]{4})")
_LEVEL = 3  # of zlib: a third of the time of the default for a tenth more bytes


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
