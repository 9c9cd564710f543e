"""What a server does now and then, between its jobs: what ended long ago, and what was deleted, goes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from app.errors import IngestStopped
from app.ingestion.lanes import Lanes
from app.ingestion.leased_run import TURN_S
from app.models.cores import release_helpers
from ragcache.errors import FAULTS, RagcacheError

ROUND_S = 3600.0  # between two rounds
AGAIN_S = 30.0  # till one goes on that has given way; twice as long each time where something fails
Forget = Callable[[Callable[[], bool]], object]  # it ends when it is told to, and goes on there the next time
log = logging.getLogger(__name__)


class Housekeeper:
    """On a thread of its own, which computes in its turn (`lanes`) and gives way as jobs do. What cannot be done holds
    up no job, and nothing else.
    """

    def __init__(self, lanes: Lanes, sweep: Callable[[], object], forgets: Sequence[Forget]):
        """`sweep` takes no time to tell of."""
        self._lanes, self._sweep, self._forgets = lanes, sweep, deque(forgets)
        self._ending = threading.Event()
        self.thread = threading.Thread(target=self._serve, name="housekeeper", daemon=True)

    def start(self) -> None:
        self.sweep()
        self.thread.start()

    def stop(self) -> None:
        """Soon; does not wait."""
        self._ending.set()

    def sweep(self) -> None:
        try:
            self._sweep()
        except FAULTS as error:
            _log("sweeping the uploads", error)

    def _serve(self) -> None:
        """Also behind a start, which does not wait for it."""
        pause, again, fresh = 0.0, AGAIN_S, False
        while not self._ending.wait(pause):
            done, failed = self._round(fresh)
            again = min(2 * again, ROUND_S) if failed else AGAIN_S
            pause, fresh = (ROUND_S, True) if done else (again, False)
            release_helpers()

    def _round(self, fresh: bool) -> tuple[bool, bool]:
        """Whether it came to its end, and whether something could not be done."""
        try:
            with self._lanes.computing(self._ending.is_set):
                if fresh:
                    self.sweep()
                turn, failed = _Turn(self._ending, self._lanes), False
                for forget in self._forgets:
                    try:
                        forget(turn.is_over)
                    except FAULTS as error:  # which may last
                        _log("forgetting what was deleted", error)
                        failed = True
                if turn.over:
                    self._forgets.rotate(-1)  # or the first would have all turns
                return not turn.over, failed
        except IngestStopped:
            return False, False


class _Turn:
    def __init__(self, ending: threading.Event, lanes: Lanes):
        self._ending, self._lanes = ending, lanes
        self._until = monotonic() + TURN_S
        self.over = False

    def is_over(self) -> bool:
        self.over = self.over or self._ending.is_set() or (self._lanes.is_wanted and monotonic() >= self._until)
        return self.over


def _log(deed: str, error: Exception) -> None:
    log.error("%s: %s", deed, error, exc_info=not isinstance(error, RagcacheError))
