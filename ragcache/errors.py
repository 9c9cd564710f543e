"""Every error that the project raises for its users, in one tree: its root, and what the engines raise. A message says
what is wrong, with the value that is wrong, and what to do about it.

Besides, what may break while a request is linked, and costs it no more than its link; or while something is captured.
"""

from __future__ import annotations

import concurrent.futures
import struct
from typing import Any, ClassVar


class RagcacheError(Exception):
    """Base of all errors meant for users, of every package; anything else is a bug."""

    status: ClassVar[int] = 500  # as HTTP counts them: 4xx is for whoever asked, 5xx for whoever runs it


class ConfigError(RagcacheError):
    """A setting, flag or name that cannot be used."""

    status = 400


class ModelError(RagcacheError):
    """A model that cannot be found, read or run by this engine."""

    status = 503


class PromptError(RagcacheError):
    """A prompt that cannot be answered: too long, malformed, or holding an empty chunk."""

    status = 400


class StoreError(RagcacheError):
    """The cache folder cannot be used (not writable, full)."""

    status = 507


class StoreFull(StoreError):
    """What was to be kept has no room: in the budget, or on the disk."""


class RemoteError(StoreError):
    """The bucket below the disk does not answer, or refuses: it is tried again later, and nobody waits for it."""

    status = 503


class BucketUntold(StoreError):
    """What went here could not be written down for the bucket, where it stays until it goes once more."""


class UnreadableObject(RemoteError):
    """One object of the bucket, though others may well be read: it is archived, has rights of its own, or has changed
    since it was listed.
    """

    def __init__(self, message: str, *, archived: bool = False):
        """`archived`: nobody can read it, whoever asks."""
        super().__init__(message)
        self.archived = archived


class CorruptEntry(StoreError):
    """A cache file whose bytes are not what was written: truncated, flipped, or of another format."""


class ForeignEntry(StoreError):
    """A sound cache file that belongs to another engine, model or chunk."""


class NewerEntry(ForeignEntry):
    """One that a newer version has written, which may still want it."""


# Linking runs on threads that serve everybody, where a prompt can always be computed in its place. So whatever an
# operation of ours, of numpy or of torch can raise for one request's values is met there: out of memory too, which is a
# RuntimeError of torch's. Left out are the ends of programs and threads, which are no Exceptions.
FAULTS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RagcacheError,
    RuntimeError,
    TypeError,
    ValueError,
    concurrent.futures.CancelledError,
    concurrent.futures.InvalidStateError,
    struct.error,
)


def reason_of(error: Exception) -> str:
    """For a report: its kind too, where it was not raised for a user to read; and not longer than a few lines."""
    told = str(error) if isinstance(error, RagcacheError) else f"{type(error).__name__}: {error}"
    told = told.encode(errors="backslashreplace").decode()  # names of files may be no text
    return told if len(told) <= 500 else f"{told[:500]}…"


class HandingOver:
    """Of a computation on one thread, for another that waits for it: whatever ends the block. `what` makes it an error
    for users: at its start vLLM raises all kinds, some of them with the reason in the log alone.
    """

    def __init__(self, answer: concurrent.futures.Future[Any], what: str = ""):
        self._answer, self._what = answer, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if error is not None:
            told = error
            if self._what and not isinstance(error, RagcacheError):
                told = ModelError(f"{self._what}: {error}")
                told.__cause__ = error
            self._answer.set_exception(told)
        return True
