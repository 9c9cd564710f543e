"""Keys with answers under way. The gate has let a request in once and a stream outlives that, so whoever makes one is
told when its key is good no more. One look tells it of all keys, whatever their streams say meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.exc import SQLAlchemyError

from app.server.problems import LATER_S, RefusedRequest
from ragcache.errors import FAULTS, RagcacheError

LOOK_S = 2.0
LOOK_FAULTS: tuple[type[Exception], ...] = (*FAULTS, SQLAlchemyError)
_log = logging.getLogger(__name__)

End = Callable[[RefusedRequest], None]


def unknown_key(why: str) -> RefusedRequest:
    return RefusedRequest(401, why, code="invalid_api_key", headers={"WWW-Authenticate": 'Bearer realm="ragcache"'})


class KeyWatch:
    """Threads share it. Its own thread begins with the first that is watched, and waits where there is none."""

    def __init__(self, lapsed: Callable[[Collection[str]], Collection[str]]):
        """`lapsed`: which of these ids are of keys that are good no more."""
        self._lapsed = lapsed
        self._changed = threading.Condition()  # of all below
        self._watched: dict[object, tuple[str, End]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def watching(self, key_id: str, end: End) -> Iterator[None]:
        """`end` is called once in the block, on a thread of ours, where that key lapses. It does not wait. Without a
        key it is never called. Raises RefusedRequest where no thread is to be had: nobody would see that key lapse.
        """
        mark = object()
        try:
            if key_id:
                self._add(mark, key_id, end)
            yield
        finally:
            with self._changed:
                self._watched.pop(mark, None)

    async def end_of(self, key_id: str) -> RefusedRequest:
        """Comes when that key has lapsed, or cannot be watched. Cancel it."""
        loop = asyncio.get_running_loop()
        lapsed: asyncio.Future[RefusedRequest] = loop.create_future()

        def tell(refusal: RefusedRequest) -> None:
            if not lapsed.done():  # or whoever waited was cancelled
                lapsed.set_result(refusal)

        def end(refusal: RefusedRequest) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, refusal)

        try:
            with self.watching(key_id, end):
                return await lapsed
        except RefusedRequest as refusal:
            return refusal

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _add(self, mark: object, key_id: str, end: End) -> None:
        with self._changed:
            self._watched[mark] = (key_id, end)
            if not (self._thread is not None and self._thread.is_alive()) and not self._closed:
                thread = threading.Thread(target=self._run, name="ragcache-keys", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    why = "the server has no thread left to watch this key with: ask again soon"
                    raise RefusedRequest(503, why, headers={"Retry-After": str(LATER_S)}) from error
                self._thread = thread
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._watched)
                if self._changed.wait_for(lambda: self._closed, LOOK_S):
                    return
                keys = {key_id for key_id, _ in self._watched.values()}
            if keys:
                self._look(keys)

    def _look(self, keys: Collection[str]) -> None:
        try:
            lapsed = self._lapsed(keys)
        except LOOK_FAULTS as error:  # no answer ends because the catalog is busy, and the next look may tell
            bug = not isinstance(error, RagcacheError)
            _log.warning("whether keys with answers under way are still good is not known: %s", error, exc_info=bug)
            return
        with self._changed:
            gone = {mark: end for mark, (key_id, end) in self._watched.items() if key_id in lapsed}
            for mark in gone:
                del self._watched[mark]
        for end in gone.values():
            try:
                end(unknown_key("this key has expired or was revoked meanwhile: ask again with one that is good"))
            except FAULTS:  # the others end all the same
                _log.exception("an answer was not ended with its key")
