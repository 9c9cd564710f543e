"""Prompts that wait in vLLM's queue: how long, and what the workers read meanwhile of those whose plan is made."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass
from time import perf_counter

from ragcache.engine.vllm.block_names import PromptNames
from ragcache.engine.vllm.jobs import NamedLinkage
from ragcache.engine.vllm.orders import Fetch, Load, Within
from ragcache.loader.threads import Clock

LAST = 3  # turns, the shortest of which the next one is taken to last


@dataclass(frozen=True)
class _Waiting:
    asked: NamedLinkage
    names: PromptNames


class WaitingPrompts:
    """In the order in which they came, and of one at a time: what several read at once the first would wait for. What
    others read in order to go on has the disk before it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}  # and nothing is read of them yet
        self._fetched: str | None = None  # of which the workers have not been told to load it
        self._forgone: list[str] = []  # since the last step

    @property
    def requests(self) -> set[str]:
        return {*self._waiting, *([] if self._fetched is None else [self._fetched])}

    def joined(self, request: str, asked: NamedLinkage, names: PromptNames) -> None:
        self._waiting[request] = _Waiting(asked, names)

    def left(self, request: str) -> None:
        """It has its blocks: what was read for it is for its Load."""
        self._waiting.pop(request, None)

    def gone(self, request: str) -> None:
        """Nothing of it will be loaded."""
        self._waiting.pop(request, None)
        if self._fetched == request:
            self._fetched = None
            self._forgone.append(request)

    def orders(
        self, loads: Iterable[Load], making: Container[bytes], linking: Within, *, quiet: bool
    ) -> tuple[tuple[Fetch, ...], tuple[str, ...]]:
        """What the workers read from now on, and what no more. `loads`: of this step. `making`: links that are made
        now. `linking`: what breaks within it is a request's alone. `quiet`: nobody reads in order to go on.
        """
        if any(load.request == self._fetched for load in loads):
            self._fetched = None
        forgone, self._forgone = tuple(self._forgone), []
        fetch = self._next(making, linking) if quiet and self._fetched is None else None
        return () if fetch is None else (fetch,), forgone

    def _next(self, making: Container[bytes], linking: Within) -> Fetch | None:
        """The first that will not find what it lacks in the prefix cache."""
        for request, one in list(self._waiting.items()):
            with linking(request):
                share = one.names.share
                if share is not None and share.key in making:
                    continue
                del self._waiting[request]
                shared = one.asked.plan.question if share is None else share.tokens
                if one.names.held < shared and (pieces := one.asked.pieces()):
                    self._fetched = request
                    return Fetch(request, pieces)
        return None


class QueueTurns:
    """How long requests stand first in vLLM's queue: in that time what they lack is read, and nobody waits for it. One
    thread tells; others may ask what is expected.
    """

    def __init__(self, clock: Clock = perf_counter):
        self._clock = clock
        self._came: dict[str, float] = {}  # of those that wait
        self._took: dict[str, float] = {}  # of those that do not, and live
        self._running = set[str]()
        self._last = clock()  # when a request was taken up
        self._turns = deque[float]((0.0,), maxlen=LAST)

    @property
    def expected(self) -> float:
        """Of a request that comes now: as short as any of the last ones."""
        return min(self._turns)

    def came(self, request: str) -> None:
        self._came[request] = self._clock()

    def taken(self, request: str) -> None:
        """Vllm asks what it lacks: it is about to run. Told again and again."""
        if (came := self._came.pop(request, None)) is not None:
            now = self._clock()
            self._took[request] = now - max(came, self._last)
            self._last = now
            self._turns.append(self._took[request])

    def runs(self, request: str) -> None:
        """It has its blocks."""
        self._running.add(request)

    def has_run(self, request: str) -> bool:
        """Also where it has none now: vLLM takes them back from a request, and begins with it again."""
        return request in self._running

    def took(self, request: str) -> float:
        return self._took.get(request, 0.0)

    def gone(self, request: str) -> None:
        self._came.pop(request, None)
        self._took.pop(request, None)
        self._running.discard(request)
