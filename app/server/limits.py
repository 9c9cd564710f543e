"""How much a request may bring, how slowly, and how often."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.problems import RefusedRequest, problem
from app.server.queueing import GONE

PAUSE_S = 15.0  # between two parts of a body
GRACE_S = 10.0  # before it is asked how fast they come
SLOWEST = 1024  # bytes per second
LOOKS = 120  # at jobs in a minute, of a key with a rate
_UPLOADS = re.compile(r"(?s)/v1/collections/.+/documents(/.*)?")  # with line ends, else each part of a path is tried
CHANGES, READS, WATCHES = 8, 16, 2  # of one caller at a time, of 40 threads for all
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Each has its own turns.
_ANSWERING = re.compile(
    r"/v1/(chat/completions|completions|embeddings|context_caches|conversations/[^/]+/(messages|again|stop))"
)
_FOLLOWING = re.compile(r"/v1/(jobs/[^/]+/events|conversations/[^/]+/answer)")  # takes no thread, and may take hours
_WATCHED = ("/ready", "/metrics")
_JOBS = re.compile(r"/v1/jobs(/[^/]+(/events)?)?")


class BodyLimits:
    """ASGI middleware. What says that it is too long is refused before any of it is read, all else while it comes; the
    seconds count in which the application waits for more.
    """

    def __init__(
        self, app: ASGIApp, *, body_bytes: int, upload_bytes: int, pause_s: float = PAUSE_S, grace_s: float = GRACE_S
    ):
        self._app, self._body_bytes, self._upload_bytes = app, body_bytes, upload_bytes
        self._pause_s, self._grace_s = pause_s, grace_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most = self._upload_bytes if _UPLOADS.fullmatch(scope["path"]) else self._body_bytes
        if declared(scope) > most:
            return await problem(413, _too_long(most))(scope, receive, send)
        await self._app(scope, self._limited(receive, most), send)

    def _limited(self, receive: Receive, most: int) -> Receive:
        came, waited, more = 0, 0.0, True

        async def limited() -> Message:
            nonlocal came, waited, more
            if not more:  # for the client to go away
                return await receive()
            start = monotonic()
            try:
                async with asyncio.timeout(self._pause_s):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"nothing of the body came for {self._pause_s:g} s") from None
            came, waited = came + len(message.get("body", b"")), waited + monotonic() - start
            more = message.get("more_body", False)
            if came > most:
                raise HTTPException(413, _too_long(most))
            if more and waited > self._grace_s and came < waited * SLOWEST:
                raise HTTPException(408, f"the body comes too slowly: {came} bytes in {waited:.0f} s")
            return message

        return limited


class RequestRates:
    """How often each key asks: as many requests at once as it may have in a minute, and one more whenever one of these
    is a minute's share old.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, deed: str = "ask"):
        self._clock, self._deed = clock, deed
        self._left: dict[str, tuple[float, float]] = {}  # requests, at a time; a row for each key that ever asked

    def count(self, key_id: str, per_minute: int | None) -> None:
        """Raises RefusedRequest."""
        if per_minute is None:
            return
        moment = self._clock()
        left, before = self._left.get(key_id, (float(per_minute), moment))
        left = min(float(per_minute), left + (moment - before) * per_minute / 60)
        if left < 1:
            self._left[key_id] = left, moment
            seconds = math.ceil((1 - left) * 60 / per_minute) if per_minute else 60
            told = f"this key may {self._deed} {per_minute} times in a minute: come again in {seconds} s"
            raise RefusedRequest(429, told, code="rate", headers={"Retry-After": str(seconds)})
        self._left[key_id] = left - 1, moment


class KeyRates:
    """Whoever waits for his files looks each second how far they are, and may ask meanwhile all the same: looks at jobs
    are counted apart, and a key may have as many as it may ask, or LOOKS.
    """

    def __init__(self, clock: Callable[[], float] = monotonic):
        self._asked, self._looks = RequestRates(clock), RequestRates(clock, "look at jobs")

    def count(self, scope: Scope, key_id: str, per_minute: int | None) -> None:
        """Raises RefusedRequest."""
        if scope["method"] == "GET" and _JOBS.fullmatch(scope["path"]):
            self._looks.count(key_id, None if per_minute is None else max(per_minute, LOOKS))
        else:
            self._asked.count(key_id, per_minute)


class OpenRequests:
    """How many each key has at a time, streams of events too, which may last for hours and take no turn."""

    def __init__(self, most: int):
        self._most = max(1, most)
        self._open = Counter[str]()

    @contextmanager
    def one(self, key_id: str) -> Iterator[None]:
        """As long as the block. Who asks without a key sits at the machine. Raises RefusedRequest."""
        if key_id and self._open[key_id] >= self._most:
            told = f"this key has {self._most} requests open, as many as one key may: end one of them"
            raise RefusedRequest(429, told, code="open", headers={"Retry-After": "5"})
        self._open[key_id] += 1
        try:
            yield
        finally:
            self._open[key_id] -= 1
            if not self._open[key_id]:
                del self._open[key_id]


def is_change(scope: Scope) -> bool:
    """Whether it changes something from its beginning on. Answers, embeddings and context caches that are made have
    their own turns, and who ends one waits for nothing; of an upload the change begins when the whole file has come,
    which may take hours.
    """
    if scope["method"] not in _CHANGING or _ANSWERING.fullmatch(scope["path"]):
        return False
    return scope["method"] != "PUT" or not _UPLOADS.fullmatch(scope["path"])


def is_read(scope: Scope) -> bool:
    """Whether it looks something up, on a thread."""
    return scope["method"] in ("GET", "HEAD") and not is_watch(scope) and not _FOLLOWING.fullmatch(scope["path"])


def is_watch(scope: Scope) -> bool:
    """Whether it is of those who look how the server does, which no reading holds up."""
    return scope["path"] in _WATCHED


class RequestsAtOnce:
    """How many requests of each caller do something at a time, such as change something; his others wait, in their
    order. A change may wait half a minute for another one, and a large text may take a look as long, on a thread of
    those that all callers need: who waits here has none.
    """

    def __init__(self, most: int = CHANGES):
        self._most = most
        self._running = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one(self, caller_id: str, receive: Receive) -> AsyncIterator[Receive]:
        """As long as the block, which receives by what it is given. Raises RefusedRequest where the client goes away
        before; amid a body this is seen when the rest of it is read.
        """
        coming = _Coming(receive)
        if self._running[caller_id] < self._most:
            self._running[caller_id] += 1
        else:
            await self._given(caller_id, coming)
        try:
            yield coming.receive
        finally:
            self._end(caller_id)

    async def _given(self, caller_id: str, coming: _Coming) -> None:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller_id, deque()).append(given)
        leaving = asyncio.ensure_future(coming.end())
        try:
            await asyncio.wait((given, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not given.done():
                raise RefusedRequest(GONE, "the client went away")
        except (RefusedRequest, asyncio.CancelledError):
            self._leave(caller_id, given)
            raise
        finally:
            leaving.cancel()

    def _leave(self, caller_id: str, given: asyncio.Future[None]) -> None:
        if given.done():  # in the same moment
            self._end(caller_id)
            return
        self._waiting[caller_id].remove(given)
        if not self._waiting[caller_id]:
            del self._waiting[caller_id]

    def _end(self, caller_id: str) -> None:
        """Whoever of his waits longest has the place from now on."""
        if waiting := self._waiting.get(caller_id):
            waiting.popleft().set_result(None)
            if not waiting:
                del self._waiting[caller_id]
            return
        self._running[caller_id] -= 1
        if not self._running[caller_id]:
            del self._running[caller_id]


class _Coming:
    """What comes of a request while nobody reads it."""

    def __init__(self, receive: Receive):
        self._receive = receive
        self._kept = deque[Message]()

    async def end(self) -> None:
        """Comes when the client goes away. Of a body no more than its first part is taken."""
        while not self._kept or not self._kept[-1].get("more_body", False):
            self._kept.append(await self._receive())
            if self._kept[-1]["type"] == "http.disconnect":
                return
        await asyncio.Event().wait()

    async def receive(self) -> Message:
        return self._kept.popleft() if self._kept else await self._receive()


def declared(scope: Scope | Message) -> int:
    """The length that the head tells, which the HTTP parser has checked; 0 where it tells none."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)


def _too_long(most: int) -> str:
    return f"the body is longer than the {most} bytes that this server takes here"
