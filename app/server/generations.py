"""Answers that belong to the server: each is read on a thread of its own, to its end, whoever follows it or goes away.

What is told of one is numbered, and kept for some minutes when it has ended, so whoever comes back goes on from where
he was.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from app.answering import Answer
from app.answering.stream import AnswerStream
from app.server.events import BEAT, event
from app.server.key_watch import KeyWatch
from app.server.problems import RefusedRequest, stream_problem
from ragcache.errors import FAULTS

KEPT_S, KEPT = 300.0, 64  # of answers that have ended
MOST_PIECES, JOINED = 4096, 256  # of one answer; pieces behind so many are joined to so many characters
BEAT_S = 15.0
CLOSING_S = 30.0  # for all that are running when the server ends; each ends at its next token
_MARK = re.compile(r"([0-9a-f]{12})-([0-9]{1,9})")

Begin = Callable[[], AnswerStream]
Watching = Callable[[Callable[[RefusedRequest], None]], AbstractContextManager[None]]  # see `KeyWatch.watching`
Finish = Callable[[Answer], Mapping[str, Any]]  # what is told of an answer that has ended, and is stored by now
Stored = Callable[[], Mapping[str, int] | None]  # ids of its messages, as far as they are stored


class ServedAnswer:
    """One answer. Its events: `start`, a `piece` for each piece of text, and `done` or `error` at its end."""

    def __init__(
        self,
        name: str,
        begin: Begin,
        finish: Finish,
        over: Callable[[], None],
        frank: bool,
        watching: Watching,
        about: Mapping[str, Any] | None = None,
        stored: Stored = lambda: None,
    ):
        """`over` is called at its end, before anybody is told of that. `frank`: see `shown`. `watching`: the key of
        whoever has asked it. `about`: what `start` tells beside it, for whoever has not asked it himself. `stored`:
        what `error` tells of it.
        """
        self.name = name
        self.id = uuid.uuid4().hex[:12]
        self.ended_at: float | None = None
        self.result: Mapping[str, Any] | None = None
        self.failure: Exception | None = None
        self._begin, self._finish, self._over, self._frank = begin, finish, over, frank
        self._watching, self._about, self._stored = watching, about or {}, stored
        self._lock = threading.Lock()  # of all below
        self._events: list[bytes] = []
        self._waiting = ""  # text that is told with the next piece
        self._listeners: set[Callable[[], None]] = set()
        self._stream: AnswerStream | None = None
        self._stopped = self._broken = False
        self._refusal: RefusedRequest | None = None
        self.thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name=f"generation-{self.id}", daemon=True
        )

    @property
    def running(self) -> bool:
        return self.ended_at is None

    def stop(self, broken: bool = False) -> None:
        """Ask it to end after the token that is computed now; does not wait. `broken`: see `AnswerStream`."""
        with self._lock:
            self._stopped, stream = True, self._stream
            self._broken = self._broken or broken
        if stream is not None:
            stream.stop(broken)

    def refuse(self, refusal: RefusedRequest) -> None:
        """End it as one that may no longer be asked. Its followers are told at once, whatever it computes now."""
        with self._lock:
            self._refusal, listeners = refusal, list(self._listeners)
        self.stop(broken=True)
        for wake in listeners:
            wake()

    def after(self, mark: str) -> int:
        """Where somebody goes on who has seen the event with this mark: at the start where it is none of these."""
        found = _MARK.fullmatch(mark)
        if found is None or found[1] != self.id:
            return 0
        with self._lock:
            return min(int(found[2]), len(self._events))

    async def follow(self, after: int = 0) -> AsyncIterator[bytes]:
        """All events behind the first `after`, as they come."""
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def listener() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(woken.set)

        with self._lock:
            self._listeners.add(listener)
        try:
            while True:
                woken.clear()
                with self._lock:
                    events, running, refusal = self._events[after:], self.running, self._refusal
                for one in events:
                    yield one
                after += len(events)
                if running and refusal is not None:
                    told = {**stream_problem(refusal, self._frank), "stored": None}  # or not yet
                    yield self._event("error", told, after + 1)
                if not running or refusal is not None:
                    return
                try:
                    await asyncio.wait_for(woken.wait(), BEAT_S)
                except TimeoutError:
                    yield BEAT
        finally:
            with self._lock:
                self._listeners.discard(listener)

    async def ended(self) -> Mapping[str, Any]:
        """What is told at its end. Raises what broke it."""
        async for _ in self.follow():
            pass
        if (failure := self.failure or self._refusal) is not None:
            raise failure
        assert self.result is not None
        return self.result

    def _run(self) -> None:
        try:
            with self._watching(self.refuse), self._begin() as stream:
                with self._lock:
                    self._stream, stopped, broken = stream, self._stopped, self._broken
                if stopped:
                    stream.stop(broken)
                citations = [one.to_dict() for one in stream.citations]
                self._tell("start", {"id": self.id, **self._about, "citations": citations})
                for piece in stream:
                    self._add(piece)
                answer = stream.answer
            if self._refusal is not None:
                raise self._refusal
            self.result = {"id": self.id, **self._finish(answer)}
            self._add("", last=True)
            self._tell("done", self.result, last=True)
        except FAULTS as error:
            self._fail(error)
        finally:
            if self.running:  # nobody waits for ever, whatever it was
                self._fail(RuntimeError("the answer ended in an unknown way"))

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._tell("error", {**stream_problem(error, self._frank), "stored": self._stored()}, last=True)

    def _add(self, piece: str, last: bool = False) -> None:
        self._waiting += piece
        if self._waiting and (last or len(self._events) < MOST_PIECES or len(self._waiting) >= JOINED):
            text, self._waiting = self._waiting, ""
            self._tell("piece", {"text": text})

    def _tell(self, name: str, data: Mapping[str, Any], last: bool = False) -> None:
        with self._lock:
            self._events.append(self._event(name, data, len(self._events) + 1))
            if last:
                self.ended_at, self._stream = time.monotonic(), None
            listeners = list(self._listeners)
        if last:
            self._over()
        for wake in listeners:
            wake()

    def _event(self, name: str, data: Mapping[str, Any], number: int) -> bytes:
        return event(data, name=name, number=number, of=self.id)


class ServedAnswers:
    """Those that run, and the last ones that have ended, each under a name. Threads share it."""

    def __init__(self, keys: KeyWatch) -> None:
        self._keys = keys
        self._lock = threading.Lock()
        self._closed = False
        self._all: list[ServedAnswer] = []  # in the order of their starts

    def start(
        self,
        name: str,
        begin: Begin,
        finish: Finish,
        over: Callable[[], None],
        frank: bool,
        key: str,
        about: Mapping[str, Any] | None = None,
        stored: Stored = lambda: None,
    ) -> ServedAnswer:
        """For as long as the key of that id is good; "" is none. Raises RefusedRequest where one of this name runs:
        nothing has begun then, and `over` is not called.
        """
        with self._lock:
            if self._closed:
                raise RefusedRequest(503, "the server is ending", headers={"Retry-After": "30"})
            if any(one.name == name and one.running for one in self._kept()):
                raise RefusedRequest(
                    409, "an answer is being made here: wait for its end, or stop it", code="answering"
                )
            watching = partial(self._keys.watching, key)
            new = ServedAnswer(name, begin, finish, over, frank, watching, about, stored)
            new.thread.start()
            self._all.append(new)
            return new

    def find(self, name: str, mark: str = "") -> ServedAnswer | None:
        """That which told the event with this mark, where it is kept, else the last of its name."""
        with self._lock:
            named = [one for one in self._kept() if one.name == name]
        return next((one for one in named if one.after(mark)), named[-1] if named else None)

    def running(self, name: str) -> bool:
        found = self.find(name)
        return found is not None and found.running

    def stop(self, name: str) -> bool:
        """Whether one was running; it ends soon."""
        with self._lock:
            found = [one for one in self._kept() if one.name == name and one.running]
        for one in found:
            one.stop()
        return bool(found)

    def drop(self, name: str) -> None:
        """Stop what runs, which is told to its followers, and forget all of this name."""
        self.stop(name)
        with self._lock:
            self._all = [one for one in self._all if one.name != name or one.running]

    def close(self) -> None:
        """Stop all, and wait until what they came to is stored."""
        with self._lock:
            self._closed, running = True, [one for one in self._all if one.running]
        for one in running:
            one.stop(broken=True)
        deadline = time.monotonic() + CLOSING_S
        for one in running:
            one.thread.join(max(0.0, deadline - time.monotonic()))

    def _kept(self) -> list[ServedAnswer]:
        oldest = time.monotonic() - KEPT_S
        ended = [one for one in self._all if one.ended_at is not None]
        gone = {one for one in ended if one.ended_at is not None and one.ended_at < oldest} | set(ended[:-KEPT])
        self._all = [one for one in self._all if one not in gone]
        return self._all
