"""Which collections have their indexes in memory: those in use, and of the others those that were asked last, as many
as a budget has room for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retriever.searcher import Searcher

LEAST_NBYTES = 64 << 10  # of an index without chunks: its objects, a mapped file
Open = Callable[[], "tuple[Searcher, int]"]  # with the bytes that it will take, as far as its files tell
Save = Callable[[str, "Searcher"], None]


@dataclass(eq=False)
class _Opened:
    searcher: Searcher
    nbytes: int
    leaving: bool = False  # it is being saved, and goes unless it is asked meanwhile


@dataclass(frozen=True)
class IndexUsage:
    """Of one process."""

    collections: int
    nbytes: int
    left: int  # that were let go for others, since the start


class IndexMemory:
    """Searchers by the uids of their collections. Threads share it.

    The one that was asked last stays, however large. One that is let go while somebody holds it goes on to work, as
    another process's would.
    """

    def __init__(self, budget: int, save: Save):
        """`save` is called without a lock for what is let go. It raises nothing."""
        self._budget, self._save = budget, save
        self._lock = threading.Lock()
        self._opened: dict[str, _Opened] = {}  # the one that was asked last stands last
        self._users: Counter[str] = Counter()
        self._nbytes = self._left = 0

    @property
    def usage(self) -> IndexUsage:
        with self._lock:
            return IndexUsage(len(self._opened), self._nbytes, self._left)

    def peek(self, uid: str) -> Searcher | None:
        """Nobody has asked it by that."""
        with self._lock:
            found = self._opened.get(uid)
        return None if found is None else found.searcher

    @contextmanager
    def keeping(self, uid: str) -> Iterator[None]:
        """It stays until the end of the block, once it is there."""
        with self._lock:
            self._users[uid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[uid] -= 1
                if not self._users[uid]:
                    del self._users[uid]
                self._weigh(uid)
            self._make_room()

    @contextmanager
    def searching(self, uid: str, opens: Open, there: Callable[[], Collection[str]]) -> Iterator[Searcher]:
        """Its searcher, which stays until the end of the block. What is new is made by `opens`, once; and where one is,
        those go that are not `there` any more.
        """
        with self.keeping(uid):
            with self._lock:
                opened = self._opened.pop(uid, None)
                is_new = opened is None
                if opened is None:
                    self._forget_but(there())
                    opened = self._new(opens)
                opened.leaving = False
                self._opened[uid] = opened
            if is_new:
                self._make_room()
            yield opened.searcher

    def _new(self, opens: Open) -> _Opened:
        searcher, nbytes = opens()
        self._nbytes += LEAST_NBYTES + nbytes
        return _Opened(searcher, LEAST_NBYTES + nbytes)

    def _weigh(self, uid: str) -> None:
        """With the lock, behind its use."""
        if (opened := self._opened.get(uid)) is not None:
            before, opened.nbytes = opened.nbytes, LEAST_NBYTES + opened.searcher.nbytes
            self._nbytes += opened.nbytes - before

    def _forget_but(self, known: Collection[str]) -> None:
        for gone in [one for one in self._opened if one not in known]:
            self._forget(gone)

    def _forget(self, uid: str) -> None:
        self._nbytes -= self._opened.pop(uid).nbytes

    def _make_room(self) -> None:
        """Until what stays is within the budget. What another thread lets go just now counts as gone."""
        while (found := self._first_to_go()) is not None:
            uid, opened = found
            try:
                self._save(uid, opened.searcher)
            finally:
                with self._lock:
                    if opened.leaving and self._opened.get(uid) is opened and not self._users[uid]:
                        self._forget(uid)
                        self._left += 1
                    opened.leaving = False

    def _first_to_go(self) -> tuple[str, _Opened] | None:
        with self._lock:
            if self._nbytes <= self._budget:
                return None
            if self._nbytes - sum(one.nbytes for one in self._opened.values() if one.leaving) <= self._budget:
                return None
            *others, _ = self._opened.items()
            for uid, opened in others:
                if not opened.leaving and not self._users[uid]:
                    opened.leaving = True
                    return uid, opened
            return None
