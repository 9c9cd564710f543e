"""Answers that wait to be read: they keep their requests open, and those of one key are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Message, Scope

from app.server.unread import PIECE, UnreadAnswers

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
LONG = b"".join(number.to_bytes(4, "big") for number in range(PIECE))  # four pieces


class Reader:
    """A client of a key, which takes as many messages as it is let."""

    def __init__(self, answers: UnreadAnswers, key: str = "anna"):
        self.read: list[Message] = []
        self._answers, self._key = answers, key
        self._may = asyncio.Semaphore(0)

    async def ask(self, response: PlainTextResponse | StreamingResponse) -> None:
        with self._answers.of(self._key, SCOPE, self._receive, self._send) as send:
            await response(SCOPE, self._receive, send)

    def take(self, messages: int = 1000) -> None:
        for _ in range(messages):
            self._may.release()

    @property
    def status(self) -> int:
        return int(self.read[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(one["body"] for one in self.read[1:])

    async def _receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        await self._may.acquire()
        self.read.append(message)


def whole(body: bytes) -> PlainTextResponse:
    return PlainTextResponse(body)


def streamed(*parts: bytes) -> StreamingResponse:
    async def pieces() -> Iterator[bytes]:  # type: ignore[misc]
        for one in parts:
            yield one

    return StreamingResponse(pieces())


@pytest.mark.parametrize("cut", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, len(LONG) - 1, len(LONG)])
@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_read_is_what_was_written(cut: int, streaming: bool) -> None:
    async def asked() -> Reader:
        reader = Reader(UnreadAnswers())
        reader.take()
        await reader.ask(streamed(LONG[:cut], LONG[cut:]) if streaming else whole(LONG[:cut]))
        return reader

    reader = asyncio.run(asked())
    assert reader.body == (LONG if streaming else LONG[:cut])
    assert max(len(one["body"]) for one in reader.read[1:]) <= PIECE
    assert [one.get("more_body", False) for one in reader.read[1:]] == [True] * (len(reader.read) - 2) + [False]


def test_a_request_lasts_until_its_answer_is_read_nearly() -> None:
    async def asked() -> list[bool]:
        reader, done = Reader(UnreadAnswers()), []
        task = asyncio.create_task(reader.ask(whole(LONG)))
        for _ in range(5):  # its head, and four pieces
            await asyncio.sleep(0.01)
            done.append(task.done())
            reader.take(1)
        await task
        return done

    assert asyncio.run(asked()) == [False] * 5


def test_a_key_that_reads_nothing_is_refused_more() -> None:
    async def asked() -> list[int]:
        answers = UnreadAnswers(2 * len(LONG))
        lazy, third, other, short = Reader(answers), Reader(answers), Reader(answers, "ben"), Reader(answers)
        unread = [asyncio.create_task(lazy.ask(whole(LONG))) for _ in range(2)]
        await asyncio.sleep(0.01)
        for reader, body in ((third, LONG), (other, LONG), (short, b"short")):
            reader.take()
            await reader.ask(whole(body))
        lazy.take()
        await asyncio.gather(*unread)
        again = Reader(answers)
        again.take()
        await again.ask(whole(LONG))
        assert third.body.startswith(b'{"error"') and again.body == LONG
        return [one.status for one in (third, other, short, again)]

    assert asyncio.run(asked()) == [429, 200, 200, 200]


def test_one_answer_may_be_longer_and_a_stream_goes_on() -> None:
    async def asked() -> list[int]:
        answers = UnreadAnswers(1)
        alone, beside = Reader(answers), Reader(answers)
        task = asyncio.create_task(alone.ask(whole(LONG)))
        await asyncio.sleep(0.01)
        beside.take()
        await beside.ask(streamed(LONG, LONG))
        alone.take()
        await task
        assert (alone.body, beside.body) == (LONG, LONG * 2)
        return [alone.status, beside.status]

    assert asyncio.run(asked()) == [200, 200]


def test_who_sits_at_the_machine_reads_when_he_likes() -> None:
    async def asked() -> list[int]:
        answers = UnreadAnswers(1)
        readers = [Reader(answers, "") for _ in range(3)]
        tasks = [asyncio.create_task(one.ask(whole(LONG))) for one in readers]
        await asyncio.sleep(0.01)
        for one in readers:
            one.take()
        await asyncio.gather(*tasks)
        return [one.status for one in readers]

    assert asyncio.run(asked()) == [200] * 3


def test_what_is_held_is_forgotten_when_the_client_goes_away() -> None:
    async def asked() -> int:
        answers = UnreadAnswers(len(LONG))
        task = asyncio.create_task(Reader(answers).ask(whole(LONG)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        again = Reader(answers)
        again.take()
        await again.ask(whole(LONG))
        return again.status

    assert asyncio.run(asked()) == 200
