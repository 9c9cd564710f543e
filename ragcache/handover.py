"""The end of a computation on one thread, for another that waits for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ragcache.errors import ModelError, RagcacheError


class HandingOver:
    """Whatever ends the block is for the thread that waits for it. `what` makes it an error for users: at its start
    vLLM raises all kinds, some of them with the reason in the log alone.
    """

    def __init__(self, answer: Future[Any], what: str = ""):
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
