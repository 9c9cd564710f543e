"""Answers that are written no sooner than they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from starlette.types import Message, Receive, Scope, Send

from app.server.limits import declared
from app.server.problems import problem

PIECE = 64 << 10  # bytes
MOST = 128 << 20  # of one key
_TOLD = "this key has answers of {} MiB that it has not read yet: read them first"


class UnreadAnswers:
    """A web server takes a whole body at once, and is done with its request whenever the client reads it. Given to it
    in pieces, each when the one before has been taken, a body keeps its request open, and with it its place among
    those that its key may have. How much of one key waits to be read is bounded: what comes then is refused.
    """

    def __init__(self, most: int = MOST):
        self._most = most
        self._unread = Counter[str]()

    @contextmanager
    def of(self, key_id: str, scope: Scope, receive: Receive, send: Send) -> Iterator[Send]:
        """What the application sends by, within the block. Who asks without a key sits at the machine."""
        answer = _Answer(key_id, self._unread, self._most, send)

        async def sent(message: Message) -> None:
            if not await answer.sent(message):
                told = _TOLD.format(self._most >> 20)
                await problem(429, told, code="unread", headers={"Retry-After": "5"})(scope, receive, send)

        try:
            yield sent
        finally:
            self._unread[key_id] -= answer.nbytes
            self._unread += Counter()  # without those that have none


class _Answer:
    def __init__(self, key_id: str, unread: Counter[str], most: int, send: Send):
        self.nbytes = 0  # of its long bodies
        self._key_id, self._unread, self._most, self._send = key_id, unread, most, send
        self._head: Message | None = None  # of a long one
        self._refused = False

    async def sent(self, message: Message) -> bool:
        """False, once, where it is too much and another one is to be sent in its place."""
        if self._refused:
            return True
        if message["type"] == "http.response.start" and declared(message) > PIECE:
            self._head = message
            return True
        nbytes = len(message.get("body", b""))
        if nbytes > PIECE:
            before = self._unread[self._key_id]
            if self._head is not None and self._key_id and before and before + nbytes > self._most:
                self._refused = True
                return False
            self._unread[self._key_id] += nbytes
            self.nbytes += nbytes
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)
        await (self._send(message) if nbytes <= PIECE else self._send_pieces(message))
        return True

    async def _send_pieces(self, message: Message) -> None:
        body = memoryview(message["body"])
        for start, end in pairwise([*range(0, len(body), PIECE), len(body)]):
            more = end < len(body) or message.get("more_body", False)
            await self._send({**message, "body": bytes(body[start:end]), "more_body": more})
