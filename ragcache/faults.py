"""What may break while a request is linked, and costs it no more than its link; or while something is captured."""

from __future__ import annotations

import concurrent.futures
import struct
from typing import Any

from ragcache.errors import ModelError, RagcacheError

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
