"""Files that come: what a key may send bounds them too, of which the catalog knows nothing before they are whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile

from app.library.catalog.jobs import Jobs
from app.library.catalog.serving_records import KeyLimits


class ComingFiles:
    """Threads share it. Each file counts with those that began before it, so that no later one ends it."""

    def __init__(self, jobs: Jobs):
        self._jobs = jobs
        self._lock = threading.Lock()
        self._sizes: dict[str, dict[object, int]] = {}  # by their owners, in the order in which they began

    @contextmanager
    def one(self, owner: str, limits: KeyLimits | None) -> Iterator[Callable[[int], None]]:
        """As long as the block; what it gives is told how many bytes the file has or will have, and raises
        LimitReached.
        """
        mark = object()

        def check(nbytes: int) -> None:
            with self._lock:
                sizes = self._sizes[owner]
                sizes[mark] = nbytes
                before = [sizes[one] for one in takewhile(lambda one: one is not mark, sizes)]
            if limits is not None:
                self._jobs.check_limits(limits, owner, sum(before) + nbytes, len(before) + 1)

        with self._lock:
            self._sizes.setdefault(owner, {})[mark] = 0
        try:
            yield check
        finally:
            with self._lock:
                del self._sizes[owner][mark]
                if not self._sizes[owner]:
                    del self._sizes[owner]
