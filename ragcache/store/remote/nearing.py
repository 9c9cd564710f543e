"""Brings ahead what prompts will want of a bucket, on a few threads of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ragcache.errors import FAULTS
from ragcache.store.remote.arrivals import Arrival, Arrivals
from ragcache.store.remote.names import ObjectPlace
from ragcache.types import VariantKey

NEARING = 4  # threads; while all are at work nothing more is begun


class Nearing:
    """Threads may share it."""

    def __init__(self, arrivals: Arrivals, far: Callable[[VariantKey], Sequence[ObjectPlace]]):
        """`far`: where an entry lies that no nearer tier has."""
        self._arrivals, self._far = arrivals, far
        self._threads = threading.BoundedSemaphore(NEARING)

    def begin(self, chosen: Callable[[], Sequence[VariantKey]]) -> Callable[[], None]:
        """As `KVStore.near`."""
        given_up = threading.Event()
        if self._threads.acquire(blocking=False):
            thread = threading.Thread(target=self._bring, args=(chosen, given_up), name="ragcache-near", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there are no more to be had
                self._threads.release()
        return given_up.set

    def _bring(self, chosen: Callable[[], Sequence[VariantKey]], given_up: threading.Event) -> None:
        """On a thread. Whoever wants what fails here asks for it again, and is told."""
        begun = deque[Arrival]()
        try:
            with suppress(*FAULTS):
                for place in [place for key in chosen() for place in self._far(key)]:
                    if (arrival := self._arrivals.begin(place, ahead=True)) is not None:
                        begun.append(arrival)
                while begun:
                    with suppress(*FAULTS):
                        self._arrivals.take(begun.popleft(), wanted=lambda: not given_up.is_set())
        finally:
            for arrival in begun:
                self._arrivals.leave(arrival)
            self._threads.release()
