"""Keys with answers under way. The gate has let a request in once and a stream outlives that, so whoever makes one is
told when its key is good no more. One look tells it of all keys, whatever their streams say meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

from app.server.problems import RefusedRequest, unknown_key
from app.server.watch import SharedWatch
from ragcache.errors import FAULTS

LOOK_S = 2.0
_log = logging.getLogger(__name__)

End = Callable[[RefusedRequest], None]


class KeyWatch(SharedWatch[tuple[str, End]]):
    what, wanted = "key", "whether keys with answers under way are still good"

    def __init__(self, lapsed: Callable[[Collection[str]], Collection[str]]):
        """`lapsed`: which of these ids are of keys that are good no more."""
        super().__init__()
        self._lapsed = lapsed

    @property
    def look_s(self) -> float:
        return LOOK_S

    @contextmanager
    def watching(self, key_id: str, end: End) -> Iterator[None]:
        """`end` is called once in the block, on a thread of ours, where that key lapses. It does not wait. Without a
        key it is never called. Raises RefusedRequest where no thread is to be had: nobody would see that key lapse.
        """
        with self._held((key_id, end)) if key_id else nullcontext():
            yield

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

    def _look(self, watched: Mapping[object, tuple[str, End]]) -> None:
        keys = {key_id for key_id, _ in watched.values()}
        lapsed = self._lapsed(keys)
        with self._changed:
            gone = {mark: end for mark, (key_id, end) in self._watched.items() if key_id in lapsed}
            for mark in gone:
                del self._watched[mark]
        for end in gone.values():
            try:
                end(unknown_key("this key has expired or was revoked meanwhile: ask again with one that is good"))
            except FAULTS:  # the others end all the same
                _log.exception("an answer was not ended with its key")
