"""Whose turn it is: so many answers at once, and a short queue before them in which nobody stands before all others."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.models.cores import in_thread
from app.server.problems import RefusedRequest

if TYPE_CHECKING:
    from app.server.callers import Caller

T = TypeVar("T")
REMEMBERED = 32  # answers, for an estimate of how long the next ones take
GUESS_S = 5.0  # of an answer, before there was one
LONGEST_RETRY_S = 120
GONE = 499  # as proxies write it down; nobody is there to read it
_HELD = "ragcache.turns"  # of a request, in its scope


class Turn:
    """The right to answer, of the event loop. It ends once, however often it is told to, and not before what a thread
    computes in it (`during`).
    """

    def __init__(self, end: Callable[[], None]):
        self._end: Callable[[], None] | None = end
        self._computing, self._ending = 0, False

    def end(self) -> None:
        self._ending = True
        if not self._computing:
            end, self._end = self._end, None
            if end is not None:
                end()

    async def compute(self, call: Callable[[], T]) -> T:
        """On a thread, whoever still waits: cancelled before a thread begins it, a call would never end its turn."""
        computing = asyncio.ensure_future(in_thread(self.during(call)))
        computing.add_done_callback(_heard)
        return await asyncio.shield(computing)

    def during(self, call: Callable[[], T]) -> Callable[[], T]:
        """What some thread is to call: whoever asked may go away meanwhile, and has no second turn beside it. It is not
        called when the turn was told to end.
        """
        loop = asyncio.get_running_loop()
        self._computing += 1

        def called() -> T:
            try:
                if self._ending:
                    raise RefusedRequest(GONE, "the client went away")
                return call()
            finally:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._computed)

        return called

    def _computed(self) -> None:
        self._computing -= 1
        if self._ending:
            self.end()


def _heard(computing: asyncio.Future[Any]) -> None:
    """What it raises may be for nobody."""
    if not computing.cancelled():
        computing.exception()


class Turns:
    """All on the one event loop of the server.

    Who is next is found caller by caller, so one with many questions waits behind his own. Where the queue
    is full, the newest of whoever has the most in it makes room for one who has fewer.
    """

    def __init__(self, concurrent: int, queue: int, clock: Callable[[], float] = monotonic):
        self._concurrent, self._queue, self._clock = concurrent, queue, clock
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()  # the caller whose turn is next comes first
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._closed = False

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """Of an answer that belongs to the server, whoever reads it. Raises RefusedRequest."""
        turn = await self._take(caller)
        try:
            yield
        finally:
            turn.end()

    async def of(self, caller: Caller, request: Request) -> Turn:
        """It ends with the request, streamed or not, if it is not ended before, and is not kept (`kept`). A client that
        goes away leaves the queue. Call it when the body is read. Raises RefusedRequest.
        """
        taking = asyncio.ensure_future(self._held(caller, request.scope[_HELD]))
        leaving = asyncio.ensure_future(hung_up(request))
        try:
            await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                return taking.result()
            raise RefusedRequest(GONE, "the client went away")
        finally:
            taking.cancel()
            leaving.cancel()

    async def all_of(self, caller: Caller, request: Request, answers: int) -> list[Turn]:
        """For several answers to one request: one turn, as `of` gives it, and as many more as nobody else wants now."""
        turns = [await self.of(caller, request)]
        held: _Held = request.scope[_HELD]
        while len(turns) < answers and not self._waiting and self._may_run(caller.id, caller.limits.concurrent):
            turns.append(self._begun(caller.id))
            held.add(turns[-1])
        return turns

    def close(self) -> None:
        """Whoever waits is told that the server ends, and so is whoever comes."""
        self._closed = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.refuse(_ending())
        self._waiting.clear()

    def retry_s(self) -> int:
        """When there may be room again."""
        took = sum(self._took) / len(self._took) if self._took else GUESS_S
        return max(1, min(LONGEST_RETRY_S, math.ceil(took * (self.waiting + 1) / self._concurrent)))

    async def _held(self, caller: Caller, held: _Held) -> Turn:
        turn = await self._take(caller)
        held.add(turn)
        return turn

    async def _take(self, caller: Caller) -> Turn:
        if self._closed:
            raise _ending()
        if caller.id not in self._waiting and self._may_run(caller.id, caller.limits.concurrent):
            return self._begun(caller.id)
        self._make_room(caller.id)
        waiter = _Waiter(caller.limits.concurrent)
        self._waiting.setdefault(caller.id, deque()).append(waiter)
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            self._leave(caller.id, waiter)
            raise

    def _may_run(self, caller_id: str, most: int | None) -> bool:
        return self.running < self._concurrent and (most is None or self._running[caller_id] < most)

    def _begun(self, caller_id: str) -> Turn:
        self._running[caller_id] += 1
        start = self._clock()
        return Turn(lambda: self._ended(caller_id, start))

    def _ended(self, caller_id: str, start: float) -> None:
        self._took.append(self._clock() - start)
        self._running[caller_id] -= 1
        if not self._running[caller_id]:
            del self._running[caller_id]
        self._give()

    def _give(self) -> None:
        """The turns that are free to those who wait, one to each caller at a time."""
        while (caller_id := self._next()) is not None:
            waiter = self._waiting[caller_id].popleft()
            self._waiting.move_to_end(caller_id)
            self._forget_if_none(caller_id)
            if not waiter.turn.done():  # else it was cancelled, and has not left yet
                waiter.turn.set_result(self._begun(caller_id))

    def _next(self) -> str | None:
        for caller_id, waiters in self._waiting.items():
            if self._may_run(caller_id, waiters[0].most):
                return caller_id
        return None

    def _make_room(self, caller_id: str) -> None:
        if self.waiting < self._queue:
            return
        longest = max(self._waiting.values(), key=len, default=deque[_Waiter]())
        if len(longest) <= len(self._waiting.get(caller_id, ())) + 1:
            raise self._full()
        longest.pop().refuse(self._full())  # at least one of its own is left

    def _leave(self, caller_id: str, waiter: _Waiter) -> None:
        if turn := waiter.given():  # in the same moment
            turn.end()
        elif waiter in self._waiting.get(caller_id, ()):
            self._waiting[caller_id].remove(waiter)
            self._forget_if_none(caller_id)

    def _forget_if_none(self, caller_id: str) -> None:
        if not self._waiting[caller_id]:
            del self._waiting[caller_id]

    def _full(self) -> RefusedRequest:
        seconds = self.retry_s()
        told = f"{self.running} answers are made and {self.waiting} requests wait: come again in {seconds} s"
        return RefusedRequest(429, told, code="queue_full", headers={"Retry-After": str(seconds)})


class _Waiter:
    def __init__(self, most: int | None):
        self.most = most
        self.turn: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    def given(self) -> Turn | None:
        given = self.turn.done() and not self.turn.cancelled() and self.turn.exception() is None
        return self.turn.result() if given else None

    def refuse(self, error: RefusedRequest) -> None:
        if not self.turn.done():
            self.turn.set_exception(error)


class _Held:
    """The turns of one request."""

    def __init__(self) -> None:
        self._turns: list[Turn] | None = []

    def add(self, turn: Turn) -> None:
        if self._turns is None:
            turn.end()  # it came too late
        else:
            self._turns.append(turn)

    def leave(self, turn: Turn) -> None:
        if self._turns is not None:
            self._turns.remove(turn)

    def end(self) -> None:
        turns, self._turns = self._turns or [], None
        for turn in turns:
            turn.end()


def kept(turn: Turn, request: Request) -> Callable[[], None]:
    """The turn belongs to the server from now on: it ends when what is returned is called, from any thread."""
    held: _Held = request.scope[_HELD]
    held.leave(turn)
    loop = asyncio.get_running_loop()

    def end() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(turn.end)

    return end


class TurnsEnd:
    """ASGI middleware: the turns of a request end with it, also those of a stream of which nothing was ever read."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_HELD] = held = _Held()
        try:
            await self._app(scope, receive, send)
        finally:
            held.end()


async def hung_up(request: Request) -> None:
    """Ends when the client does."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _ending() -> RefusedRequest:
    return RefusedRequest(503, "the server ends: ask it again when it is back", headers={"Retry-After": "10"})
