"""What a file that gives no text raises, and how its name is told."""

from __future__ import annotations

from pathlib import Path

from ragcache.errors import RagcacheError


class LoadError(RagcacheError):
    """A file that cannot be turned into text; the reason says what to do about it."""

    def __init__(self, path: Path, reason: str) -> None:
        # Both go to the base, so that an error survives the way back from a worker process.
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{printable(self.path)} {self.reason}"


def printable(path: Path) -> str:
    """The path on one line of valid Unicode: names on disk may hold line breaks, and bytes that are no UTF-8."""
    valid = str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in valid)
