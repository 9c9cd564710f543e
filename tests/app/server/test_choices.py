"""Answers side by side, and what breaks amid them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from app.answering.stream import AnswerStream
from app.server.openai.choices import pieces_of
from app.server.queueing import Turn
from ragcache.errors import PromptError

LONG_S = 60.0  # it takes none


class Strange(Exception):
    """Of a kind that nothing here meets."""


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Strange("new"), (RuntimeError, "the answer ended in an unknown way: Strange: new")),
        (PromptError("too long"), (PromptError, "too long")),
    ],
)
def test_what_breaks_one_ends_them_all_and_their_turns(
    error: Exception, told: tuple[type[Exception], str], turns: int
) -> None:
    ended = list[int]()

    def start() -> AnswerStream:
        raise error

    async def read() -> BaseException:
        own = [Turn(lambda number=number: ended.append(number)) for number in range(turns)]  # type: ignore[misc]
        with pytest.raises(told[0], match=told[1]) as raised:
            async with aclosing(pieces_of([start, start, start], own, asyncio.Future[Exception])) as pieces:
                await asyncio.wait_for(anext(pieces), LONG_S)
        async with asyncio.timeout(LONG_S):
            while len(ended) < turns:  # a turn ends behind what a thread still computes in it
                await asyncio.sleep(0.001)
        return raised.value

    said = asyncio.run(read())
    assert said is error or said.__cause__ is error
    assert sorted(ended) == list(range(turns))
