"""Bodies that are too long or too slow, and keys that ask too often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from app.server import limits
from app.server.limits import LOOKS, BodyLimits, KeyRates, OpenRequests, RequestRates
from app.server.problems import RefusedRequest

Part = bytes | float  # of a body; or seconds of silence


class Body:
    """Sent to an application that reads all of it."""

    def __init__(self, parts: Sequence[Part], path: str = "/v1/completions", length: int | None = None):
        self.read: bytes | None = None
        self.asked = 0  # for parts
        self.status: int | None = None
        self._parts = list(parts)
        head = [] if length is None else [(b"content-length", str(length).encode())]
        self._scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": head}

    async def send(self, **options: float) -> None:
        bounded = BodyLimits(self._app, body_bytes=1000, upload_bytes=5000, **options)  # type: ignore[arg-type]
        try:
            await bounded(self._scope, self._next, self._told)
        except HTTPException as error:
            self.status = error.status_code

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.read = await Request(scope, receive).body()

    async def _next(self) -> Message:
        self.asked += 1
        while isinstance(self._parts[0], float):
            await asyncio.sleep(self._parts.pop(0))  # type: ignore[arg-type]
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}

    async def _told(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


def sent(body: Body, **options: float) -> Body:
    asyncio.run(body.send(**options))
    return body


def test_what_says_that_it_is_too_long_is_not_read() -> None:
    body = sent(Body([b"x"], length=10 * 1024**3))
    assert (body.status, body.asked) == (413, 0)


def test_what_does_not_say_so_is_read_as_far_as_it_may_be() -> None:
    body = sent(Body([b"x" * 400] * 1000))
    assert (body.status, body.asked, body.read) == (413, 3, None)


def test_what_is_as_long_as_it_may_be_is_read() -> None:
    assert sent(Body([b"x" * 500, b"y" * 500], length=1000)).read == b"x" * 500 + b"y" * 500


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/collections/a/documents", 5000),
        ("/v1/collections/a b/documents/7", 5000),
        ("/v1/collections/a/documents/7/documents\n", 5000),  # else the more parts, the longer each of them takes
        ("/v1/collections/documents", 1000),
        ("/v1/conversations/documents", 1000),
    ],
)
def test_files_may_be_longer(path: str, most: int) -> None:
    assert sent(Body([b"x" * most], path)).read is not None
    assert sent(Body([b"x" * most, b"y"], path)).status == 413


def test_a_body_that_stops_is_given_up() -> None:
    assert sent(Body([b"x", 60.0, b"y"]), pause_s=0.01).status == 408


def test_a_body_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLOWEST", 10**9)
    assert sent(Body([0.001, b"x"] * 400), grace_s=0.01).status == 408


def test_the_application_may_take_its_time() -> None:
    """Seconds in which it does not ask for more are its own."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            await asyncio.sleep(0.02)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x", "more_body": bool(parts.pop())}

    parts = [0, *range(1, 10)]
    bounded = BodyLimits(slow, body_bytes=1000, upload_bytes=1000, pause_s=0.01, grace_s=0.01)
    asyncio.run(bounded({"type": "http", "path": "/", "headers": []}, receive, _nowhere))
    assert parts == []


async def _nowhere(message: Message) -> None:
    raise AssertionError(message)


def counted(rates: RequestRates, times: int, per_minute: int | None) -> int:
    """How many of so many requests are let through."""
    through = 0
    for _ in range(times):
        try:
            rates.count("a", per_minute)
        except RefusedRequest:
            continue
        through += 1
    return through


def test_a_key_has_a_minutes_requests_at_once_and_then_its_share() -> None:
    now = [0.0]
    rates = RequestRates(lambda: now[0])
    assert counted(rates, 20, 12) == 12
    now[0] = 5.0
    assert counted(rates, 20, 12) == 1
    now[0] = 3600.0
    assert counted(rates, 20, 12) == 12


def test_a_key_without_a_limit_has_none_and_none_waits_for_another() -> None:
    rates = RequestRates(lambda: 0.0)
    assert counted(rates, 500, None) == 500
    assert counted(rates, 3, 1) == 1
    rates.count("b", 1)


def test_who_asks_too_often_is_told_when_there_is_room_again() -> None:
    rates = RequestRates(lambda: 0.0)
    rates.count("a", 4)
    assert counted(rates, 3, 4) == 3
    with pytest.raises(RefusedRequest) as refused:
        rates.count("a", 4)
    assert refused.value.headers == {"Retry-After": "15"}


def test_looks_at_jobs_are_counted_apart() -> None:
    """A page looks each second, and the key that it has may ask as often as it was told all the same."""
    rates = KeyRates(lambda: 0.0)

    def through(path: str, times: int, per_minute: int | None, method: str = "GET") -> int:
        count = 0
        for _ in range(times):
            with suppress(RefusedRequest):
                rates.count({"type": "http", "method": method, "path": path}, "a", per_minute)
                count += 1
        return count

    assert through("/v1/jobs/some/events", 20, 2) + through("/v1/jobs/some", 20, 2) == 40
    assert through("/v1/jobs", 500, 2) == LOOKS - 40
    assert through("/v1/jobs/some/retry", 1, 2, "POST") + through("/v1/jobs/some", 9, 2, "DELETE") == 2
    assert through("/v1/collections", 9, 2) == 0
    with pytest.raises(RefusedRequest, match="may look at jobs 120 times in a minute") as refused:
        rates.count({"type": "http", "method": "GET", "path": "/v1/jobs"}, "a", 2)
    assert refused.value.headers == {"Retry-After": "1"}
    assert through("/v1/jobs", 5000, None) == 5000
    assert through("/v1/jobsx", 9, 2) + through("/v1/jobs/some/other", 9, 2) == 0


def test_who_may_ask_more_often_may_look_as_often() -> None:
    rates, look = KeyRates(lambda: 0.0), {"type": "http", "method": "GET", "path": "/v1/jobs"}
    for _ in range(LOOKS * 2):
        rates.count(look, "a", LOOKS * 2)
    with pytest.raises(RefusedRequest):
        rates.count(look, "a", LOOKS * 2)


def test_a_key_has_so_many_requests_open_and_others_theirs() -> None:
    """Streams of events take no turn and may last for hours, and all connections together have a bound."""
    requests = OpenRequests(2)
    with ExitStack() as opened:
        for key in ("anna", "anna", "bert", "", "", ""):
            opened.enter_context(requests.one(key))
        with pytest.raises(RefusedRequest, match="2 requests open") as refused, requests.one("anna"):
            pass
        assert refused.value.headers["Retry-After"] == "5"
    with requests.one("anna"):
        assert requests._open == {"anna": 1}, "nothing is left of those that have ended"
