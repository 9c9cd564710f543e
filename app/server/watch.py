"""What many wait for, and one thread looks at for all of them, whatever they do meanwhile."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from app.server.problems import LATER_S, RefusedRequest
from ragcache.errors import FAULTS, RagcacheError

LOOK_FAULTS: tuple[type[Exception], ...] = (*FAULTS, SQLAlchemyError)
_log = logging.getLogger(__name__)
Watched = TypeVar("Watched")


class SharedWatch(ABC, Generic[Watched]):
    """Threads share it. Its own thread begins with the first that is watched, and waits where there is none."""

    what: ClassVar[str]  # it watches
    wanted: ClassVar[str]  # what a look is to tell

    def __init__(self) -> None:
        self._changed = threading.Condition()  # of all below
        self._watched: dict[object, Watched] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    @abstractmethod
    def look_s(self) -> float:
        """Between two looks."""

    @abstractmethod
    def _look(self, watched: Mapping[object, Watched]) -> None:
        """At all of them at once."""

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def _held(self, watched: Watched) -> Iterator[None]:
        """As long as the block. Raises RefusedRequest where no thread is to be had: nobody would look."""
        mark = object()
        try:
            self._add(mark, watched)
            yield
        finally:
            with self._changed:
                self._watched.pop(mark, None)

    def _add(self, mark: object, watched: Watched) -> None:
        with self._changed:
            self._watched[mark] = watched
            if not (self._thread is not None and self._thread.is_alive()) and not self._closed:
                thread = threading.Thread(target=self._run, name=f"ragcache-{self.what}s", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    why = f"the server has no thread left to watch this {self.what} with: ask again soon"
                    raise RefusedRequest(503, why, headers={"Retry-After": str(LATER_S)}) from error
                self._thread = thread
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._watched)
                if self._changed.wait_for(lambda: self._closed, self.look_s):
                    return
                watched = dict(self._watched)
            if watched:
                self._try(watched)

    def _try(self, watched: Mapping[object, Watched]) -> None:
        try:
            self._look(watched)
        except LOOK_FAULTS as error:  # nothing ends because the catalog is busy, and the next look may tell
            _log.warning("%s is not known: %s", self.wanted, error, exc_info=not isinstance(error, RagcacheError))
