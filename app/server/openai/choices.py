"""The answers to one request, side by side, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from app.answering import Answer
from app.answering.stream import AnswerStream, AnswerToken, AsyncAnswerStream, Usage
from app.server.problems import RefusedRequest
from app.server.queueing import GONE, Turn, hung_up
from ragcache.errors import FAULTS, ModelError, reason_of

T = TypeVar("T")
Start = Callable[[], AnswerStream]
Refused = Callable[[], Awaitable[Exception]]  # comes when they may be read no longer
WAITING = 32  # pieces that a client may be behind; then its answers wait for him


@dataclass(frozen=True)
class ChoicePiece:
    """A part of the answer with this number; `answer` with its last one."""

    index: int
    text: str
    tokens: Sequence[AnswerToken] = ()
    answer: Answer | None = None
    finish_reason: str = ""
    usage: Usage | None = None


Coming = ChoicePiece | Exception


async def pieces_of(
    starts: Sequence[Start], turns: Sequence[Turn], refused: Refused, kept: Turn | None = None
) -> AsyncGenerator[ChoicePiece, None]:
    """As many at once as there are turns, each of which ends as soon as it is left over, and at the latest when this is
    closed, but for one that is `kept` for what is made of them. Closing this ends all answers. Raises what the first of
    them raises, or what comes of `refused`.
    """
    queue: asyncio.Queue[Coming] = asyncio.Queue(WAITING)
    waiting = iter(enumerate(starts))
    tasks = [asyncio.create_task(_in_turn(waiting, turn, queue, turn is kept)) for turn in turns]
    tasks.append(asyncio.create_task(_refuse(refused, queue)))
    try:
        left = len(starts)
        while left:
            found = await queue.get()
            if isinstance(found, Exception):
                raise found
            left -= found.answer is not None
            yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_turn(waiting: Iterator[tuple[int, Start]], turn: Turn, queue: asyncio.Queue[Coming], kept: bool) -> None:
    async with _HandedOver(queue):
        try:
            for index, start in waiting:
                await _follow(index, turn.during(start), queue)
        finally:
            if not kept:
                turn.end()


async def _refuse(refused: Refused, queue: asyncio.Queue[Coming]) -> None:
    await queue.put(await refused())


async def _follow(index: int, start: Start, queue: asyncio.Queue[Coming]) -> None:
    async with await AsyncAnswerStream.of(start) as stream:
        async for text in stream:
            await queue.put(ChoicePiece(index, text, stream.take_tokens()))
        answer = await stream.answer()
        reason = stream.finish_reason
        if reason == "cancelled":
            raise ModelError("the engine gave the answer up before its end")
        assert reason is not None
        await queue.put(ChoicePiece(index, "", stream.take_tokens(), answer, reason, stream.usage))


class _HandedOver:
    """Whoever reads the queue raises what breaks in the block, and does not wait for ever, whatever it was. A kind that
    nothing meets is a bug like others.
    """

    def __init__(self, queue: asyncio.Queue[Coming]):
        self._queue = queue

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        told: Exception = error
        if not isinstance(error, FAULTS):
            told = RuntimeError(f"the answer ended in an unknown way: {reason_of(error)}")
            told.__cause__ = error
        await self._queue.put(told)
        return True


async def begun(pieces: AsyncGenerator[ChoicePiece, None]) -> AsyncGenerator[ChoicePiece, None]:
    """The same, when the first has come: what cannot be asked has its status by then."""
    first = await anext(pieces)

    async def all_of_them() -> AsyncGenerator[ChoicePiece, None]:
        async with aclosing(pieces) as rest:
            yield first
            async for piece in rest:
                yield piece

    return all_of_them()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Cancelled when the client goes away, who would not see it."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise RefusedRequest(GONE, "the client has gone away")
    finally:
        for one in (task, gone):
            one.cancel()
            with suppress(asyncio.CancelledError, *FAULTS):
                await one
