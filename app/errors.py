"""What the application raises for its users. Those of the engines and of the parts stand with them."""

from __future__ import annotations

from pathlib import Path
from unicodedata import category

from ragcache.errors import RagcacheError

ORDINARY = "\u00ad\u200c\u200d"  # soft hyphen and joiners, which Persian, Hindi and emoji are written with


class CatalogError(RagcacheError):
    """A database that cannot be used, or a change of it that cannot be made."""

    status = 503


class NotFound(CatalogError):
    """A collection, document, key, job or the like that is not there, or a filter that nothing can match."""

    status = 404


class CollectionBusy(CatalogError):
    """Another process is working on the collection: later it can be done."""

    status = 409


class Conflict(CatalogError):
    """What is asked for cannot be done in the state that something is in."""

    status = 409


class LimitReached(CatalogError):
    """More than a key may have."""

    status = 403


class KeyLapsed(CatalogError):
    """What a key was to have done that has expired or was revoked meanwhile."""

    status = 401


class IngestError(RagcacheError):
    """An ingest that cannot start, or cannot go on. A file that cannot be read does not stop it: it is a Failure."""

    status = 400


class OtherEmbedder(CatalogError):
    """What a collection was embedded by, until it is embedded anew."""


class DiskShort(IngestError):
    """The disk has no room for the next document."""

    status = 507


class IngestStopped(RagcacheError):
    """Somebody has told the ingest to end. What is in stays, and the next one goes on there."""

    status = 409


class LoadError(RagcacheError):
    """A file that cannot be turned into text; the reason says what to do about it."""

    status = 422

    def __init__(self, path: Path, reason: str) -> None:
        # Both go to the base, so that an error survives the way back from a worker process.
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{printable(self.path)} {self.reason}"


class PagesBusy(RagcacheError):
    """So many pages are being drawn that no more are begun."""

    status = 429


class MaintenanceError(RagcacheError):
    """What an operator asked for cannot be done."""

    status = 400


def printable(path: Path) -> str:
    """The path on one line of valid Unicode: names on disk may hold line breaks, and bytes that are no UTF-8."""
    valid = str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return on_one_line(valid)


def on_one_line(text: str) -> str:
    """Harmless to a terminal: blanks of any width as a space, and what else cannot be printed as an escape."""
    return "".join(map(_sign, text))


def can_be_shown(text: str) -> bool:
    """Whether that escapes nothing of it."""
    return all(_is_shown(sign) or category(sign) == "Zs" for sign in text)


def _sign(sign: str) -> str:
    if _is_shown(sign):
        return sign
    return " " if category(sign) == "Zs" else sign.encode("unicode_escape").decode("ascii")


def _is_shown(sign: str) -> bool:
    return sign.isprintable() or sign in ORDINARY
