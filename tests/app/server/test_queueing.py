"""Turns: how many answer at once, who is next, and what is told to those for whom there is no room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from app.library.catalog.serving_records import KeyLimits
from app.server.callers import Caller
from app.server.problems import RefusedRequest
from app.server.queueing import GONE, Turn, Turns, TurnsEnd

ANNA, BERT, CARL = Caller("anna"), Caller("bert"), Caller("carl")


class Line:
    """Callers who ask for a turn one after another; `order` is who got it."""

    def __init__(self, turns: Turns):
        self.turns, self.order = turns, list[str]()
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    async def ask(self, *callers: Caller) -> None:
        for caller in callers:
            self.tasks.append(asyncio.ensure_future(self._answer(caller)))
            await settled()

    async def end_next(self) -> None:
        self._ends.pop(0).set()
        await settled()

    async def end_all(self) -> None:
        while self._ends:
            await self.end_next()

    async def _answer(self, caller: Caller) -> None:
        async with self.turns.turn(caller):
            self.order.append(caller.id)
            self._ends.append(end := asyncio.Event())
            await end.wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def in_line(turns: Turns, story: Callable[[Line], Awaitable[None]]) -> None:
    async def run() -> None:
        line = Line(turns)
        await story(line)
        await line.end_all()
        for task in line.tasks:
            with suppress(RefusedRequest, asyncio.CancelledError):
                await task
        assert (turns.running, turns.waiting) == (0, 0)

    asyncio.run(run())


def test_one_with_many_questions_waits_behind_his_own() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, ANNA, ANNA, ANNA, BERT, CARL)
        assert (line.order, line.turns.waiting) == (["anna"], 5)
        await line.end_all()
        assert line.order == ["anna", "anna", "bert", "carl", "anna", "anna"]

    in_line(Turns(1, 8), story)


def test_no_more_than_so_many_answer_at_once() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, BERT, CARL, ANNA)
        assert line.order == ["anna", "bert"]
        await line.end_next()
        assert (line.order, line.turns.running) == (["anna", "bert", "carl"], 2)

    in_line(Turns(2, 8), story)


def test_a_key_that_may_have_one_at_a_time_leaves_the_others_free() -> None:
    async def story(line: Line) -> None:
        once = Caller("once", limits=KeyLimits(concurrent=1))
        await line.ask(once, once, BERT)
        assert line.order == ["once", "bert"]
        await line.end_next()
        assert line.order == ["once", "bert", "once"]

    in_line(Turns(3, 8), story)


def test_who_finds_the_queue_full_is_told_when_to_come_again() -> None:
    now = [0.0]

    async def story(line: Line) -> None:
        await line.ask(ANNA)
        now[0] = 7.0
        await line.end_next()  # an answer took seven seconds
        await line.ask(ANNA, ANNA, ANNA)
        with pytest.raises(RefusedRequest) as refused:
            async with line.turns.turn(ANNA):
                pass
        assert (refused.value.refused_with, refused.value.headers) == (429, {"Retry-After": "21"})

    in_line(Turns(1, 2, lambda: now[0]), story)


def test_the_newest_of_who_fills_the_queue_makes_room() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, ANNA, ANNA, BERT)
        with pytest.raises(RefusedRequest):
            await line.tasks[2]
        await line.ask(CARL)  # each of the others has one, as he would
        with pytest.raises(RefusedRequest):
            await line.tasks[4]
        await line.end_all()
        assert line.order == ["anna", "anna", "bert"]

    in_line(Turns(1, 2), story)


def test_without_a_queue_nobody_waits() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, BERT)
        with pytest.raises(RefusedRequest):
            await line.tasks[1]

    in_line(Turns(1, 0), story)


def test_who_is_cancelled_has_left_whenever_that_is() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, BERT, CARL)
        line.tasks[1].cancel()
        await settled()
        assert line.turns.waiting == 1
        line.tasks[0].cancel()  # in one moment with him whose turn it would be
        line.tasks[2].cancel()
        await settled()
        assert (line.turns.running, line.turns.waiting) == (0, 0)

    in_line(Turns(1, 8), story)


@pytest.mark.parametrize("given_first", [True, False])
def test_a_turn_that_comes_with_the_end_of_its_caller_goes_to_the_next(given_first: bool) -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, BERT, CARL)
        with ExitStack() as now:
            if given_first:
                now.callback(line.tasks[1].cancel)
                line._ends.pop(0).set()
                await asyncio.sleep(0)  # Anna's task has given it away, and Bert's has not gone on
            else:
                line.tasks[1].cancel()
                line._ends.pop(0).set()
        await settled()
        assert line.order == ["anna", "carl"]

    in_line(Turns(1, 8), story)


def test_a_server_that_ends_tells_those_who_wait() -> None:
    async def story(line: Line) -> None:
        await line.ask(ANNA, BERT)
        line.turns.close()
        await line.ask(CARL)
        for task in line.tasks[1:]:
            with pytest.raises(RefusedRequest) as refused:
                await task
            assert refused.value.refused_with == 503
        assert line.order == ["anna"]

    in_line(Turns(1, 8), story)


class Client:
    """Who sent a request, as ASGI shows it to the application."""

    def __init__(self, turns: Turns, then: Callable[[Turn], Awaitable[None]]):
        self.leaves, self.failure = asyncio.Event(), list[Exception]()
        self._turns, self._then = turns, then

    async def ask(self) -> None:
        await TurnsEnd(self._app)({"type": "http"}, self._receive, self._send)

    async def _app(self, scope: object, receive: object, send: object) -> None:
        request = Request(scope, self._receive)  # type: ignore[arg-type]
        try:
            await self._then(await self._turns.of(ANNA, request))
        except RefusedRequest as error:
            self.failure.append(error)

    async def _receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        raise AssertionError(message)


async def nothing(turn: Turn) -> None:
    """A stream that is never read."""


def test_the_turn_of_a_request_ends_with_it() -> None:
    async def story(line: Line) -> None:
        await Client(line.turns, nothing).ask()
        assert line.turns.running == 0

    in_line(Turns(1, 8), story)


def test_a_turn_lasts_as_long_as_what_a_thread_computes_in_it() -> None:
    """Or whoever goes away from one prompt after the other would have them all computed at once."""

    async def story(line: Line) -> None:
        begun, computed = threading.Event(), threading.Event()
        computing: list[asyncio.Future[None]] = []

        def compute() -> None:
            begun.set()
            computed.wait()

        async def leave(turn: Turn) -> None:
            computing.append(asyncio.ensure_future(asyncio.to_thread(turn.during(compute))))
            await asyncio.to_thread(begun.wait)

        await Client(line.turns, leave).ask()
        assert line.turns.running == 1
        computed.set()
        await computing[0]
        await settled()
        assert line.turns.running == 0

    in_line(Turns(1, 8), story)


def test_nothing_is_begun_for_who_has_gone() -> None:
    async def story(line: Line) -> None:
        called: list[int] = []
        late: list[Callable[[], None]] = []

        async def leave(turn: Turn) -> None:
            late.append(turn.during(lambda: called.append(1)))

        await Client(line.turns, leave).ask()
        with pytest.raises(RefusedRequest):
            await asyncio.to_thread(late[0])
        await settled()
        assert (called, line.turns.running) == ([], 0)

    in_line(Turns(1, 8), story)


@pytest.mark.parametrize(("waits", "turns"), [(False, 3), (True, 1)])
def test_several_answers_to_one_request_have_the_turns_that_nobody_else_wants(waits: bool, turns: int) -> None:
    async def story(line: Line) -> None:
        once = Caller("once", limits=KeyLimits(concurrent=1))
        await line.ask(BERT, *([once, once] if waits else []))
        taken: list[int] = []

        async def count(scope: Scope, receive: Receive, send: Send) -> None:
            taken.append(len(await line.turns.all_of(ANNA, Request(scope, never), 16)))

        await TurnsEnd(count)({"type": "http"}, never, never)  # type: ignore[arg-type]
        assert taken == [turns]

    in_line(Turns(4, 8), story)


async def never() -> Message:
    await asyncio.Event().wait()
    return {}


def test_a_client_that_goes_away_leaves_the_queue() -> None:
    async def story(line: Line) -> None:
        await line.ask(BERT)
        client = Client(line.turns, nothing)
        asking = asyncio.ensure_future(client.ask())
        await settled()
        assert line.turns.waiting == 1
        client.leaves.set()
        await asking
        assert line.turns.waiting == 0
        assert [error.refused_with for error in client.failure if isinstance(error, RefusedRequest)] == [GONE]

    in_line(Turns(1, 8), story)
