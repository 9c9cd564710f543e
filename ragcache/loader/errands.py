"""What threads are to do, in whose turn, and how many of them at once."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

Clock = Callable[[], float]
Errand = tuple[Future[Any], Callable[[], object]]
FEWEST = 2  # at work where they share a slow disk, each with a limit of its own
FADING = 0.9  # of what the slowest has taken, for each that comes after it


class Errands:
    """Of each client the oldest, in turns, and as many at once as take well less than their limit. What ends them runs
    wherever Python collects garbage, also inside of whoever holds the lock, which a thread may therefore take again.
    """

    def __init__(self, most: int, patience_s: float, clock: Clock) -> None:
        self._most, self._patience_s, self._clock = most, patience_s, clock
        self.width = min(most, FEWEST)
        self._busy, self._looked = 0, clock()
        self._share_s, self._alone_s = 0.0, 0.0  # had by each that is at work, ever; what one takes, alone on the disk
        self._change = threading.Condition(threading.RLock())
        self._waiting: OrderedDict[int, deque[Errand]] = OrderedDict()  # by client, whose turn is next first
        self._ended = False

    def put(self, errand: Errand, client: int) -> None:
        with self._change:
            self._waiting.setdefault(client, deque()).append(errand)
            self._change.notify()

    def get(self) -> Errand | None:
        """None ends the thread."""
        with self._change:
            while not self._waiting or self._busy >= self.width:
                if self._ended and not self._waiting:
                    return None
                self._change.wait()
            self._pass()
            self._busy += 1
            client, errands = self._waiting.popitem(last=False)
            errand = errands.popleft()
            if errands:
                self._waiting[client] = errands  # behind all others
            return errand

    def idle(self, left: int) -> bool:
        """`left`: so many of those at work are waited for by nobody."""
        with self._change:
            return self._busy <= left and not self._waiting

    def share(self) -> float:
        """Seconds of the disk that each at work has had until now, as if those that share it had equal parts."""
        with self._change:
            self._pass()
            return self._share_s

    def _pass(self) -> None:
        now = self._clock()
        self._share_s += (now - self._looked) / max(1, self._busy)
        self._looked = now

    def took(self, since: float) -> None:
        """One that began at that share."""
        seconds = self.share() - since
        with self._change:
            self._alone_s = max(seconds, FADING * self._alone_s)
            fitting = self._most if self._alone_s <= 0 else int(min(self._most, self._patience_s / self._alone_s))
            self.width = min(self._most, max(FEWEST, fitting))

    def done(self) -> None:
        """Whoever has got one gets another."""
        with self._change:
            self._pass()
            self._busy -= 1
            self._change.notify_all()

    def drained(self) -> list[Errand]:
        """What nobody has taken up, and nobody will."""
        with self._change:
            left = [errand for errands in self._waiting.values() for errand in errands]
            self._waiting.clear()
        return left

    def end(self) -> None:
        """Once all is taken up."""
        with self._change:
            self._ended = True
            self._change.notify_all()
