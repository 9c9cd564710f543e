"""Requests hold up nobody else's, however many a caller sends and how long they wait: changes no looks either."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
from starlette.types import Message

from app import Settings
from app.library.catalog.conversations import Conversations
from app.server.limits import CHANGES, READS, RequestsAtOnce, is_change, is_read
from app.server.problems import RefusedRequest
from app.server.service import Service
from tests.app.server.serving import beside, serving
from tests.waiting import wait_until

MANY = 60  # more than there are threads of either kind
PATIENCE_S = 60.0


@pytest.fixture
def service(sampled: Settings, tmp_path: Path) -> Service:
    return Service(beside(sampled, tmp_path))


def sending(
    client: httpx2.Client, method: str, path: str, body: bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> socket.socket:
    """It is sent, and nobody waits for what comes of it."""
    sock = socket.create_connection((client.base_url.host, client.base_url.port or 80))
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    sock.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    return sock


def status(sock: socket.socket) -> int:
    sock.settimeout(PATIENCE_S)
    return int(sock.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("uploads", [False, True])
def test_changes_that_wait_for_the_catalog_hold_up_nothing_else(service: Service, uploads: bool) -> None:
    """Of one caller: a document may be written for half a minute."""
    with serving(service) as client, ExitStack() as sent:
        talk = client.post("/v1/conversations", json={}).json()["id"]
        before = len(service.catalog.conversations.all())
        with service.catalog.database.writing():
            for number in range(MANY):
                what = ("PUT", f"/v1/collections/default/documents/{number}.txt", b"Some words.")
                request = what if uploads else ("POST", "/v1/conversations", b"{}")
                sent.enter_context(waits := sending(client, *request))
            spool = service.ingests.spool.folder
            wait_until(lambda: not uploads or len([*spool.rglob("*.txt")]) == CHANGES, PATIENCE_S)
            assert client.get("/ready").status_code == 200
            body = {"model": service.model, "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 1}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            asked = client.get(f"/v1/conversations/{talk}")
            assert asked.status_code == 200
        assert status(waits) == (202 if uploads else 201), "none is refused"
        if not uploads:
            wait_until(lambda: len(service.catalog.conversations.all()) == before + MANY, PATIENCE_S)


def test_looks_that_take_long_hold_up_no_other_caller(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [{"Authorization": f"Bearer {service.catalog.keys.create(name, ['read'])[1]}"} for name in ("a", "b")]
    going_on, looks, page = Event(), list[str](), Conversations.page

    def long(stored: Conversations, owner: str, *args: Any, **kwargs: Any) -> Any:
        looks.append(owner)
        assert going_on.wait(PATIENCE_S)
        return page(stored, owner, *args, **kwargs)

    with serving(service, heads[1]) as client, ExitStack() as sent:
        assert client.get("/v1/models", headers=heads[0]).status_code == 200  # that key is known then
        monkeypatch.setattr(Conversations, "page", long)
        sent.callback(going_on.set)
        for _ in range(MANY):
            sent.enter_context(waits := sending(client, "GET", "/v1/conversations", b"", heads[0]))
        wait_until(lambda: len(looks) >= READS, PATIENCE_S)
        assert client.get("/v1/collections").status_code == 200
        assert len(looks) == READS
        going_on.set()
        assert status(waits) == 200, "none is refused"
    assert len(looks) == MANY


def test_what_is_followed_takes_no_place_of_a_look() -> None:
    reads = {
        ("GET", "/v1/conversations"): True,
        ("HEAD", "/v1/conversations/a/export"): True,
        ("GET", "/v1/conversations/a/answer"): False,
        ("GET", "/v1/jobs/a/events"): False,
        ("GET", "/v1/jobs/a"): True,
        ("GET", "/ready"): False,
        ("POST", "/v1/conversations"): False,
    }
    assert {asked: is_read(dict(zip(("method", "path"), asked, strict=True))) for asked in reads} == reads


def test_answers_and_looks_are_no_changes() -> None:
    changes = {
        ("POST", "/v1/conversations"): True,
        ("POST", "/v1/collections/a/cache/warm"): True,
        ("PATCH", "/v1/conversations/a"): True,
        ("DELETE", "/v1/collections/a/documents/7"): True,
        ("PUT", "/v1/cache/budgets"): True,
        ("PUT", "/v1/collections/documents/cache/pin"): True,
        ("PUT", "/v1/collections/a/documents/b.txt"): False,  # it is one when all of the file is there
        ("POST", "/v1/conversations/a/messages"): False,
        ("POST", "/v1/conversations/a/again"): False,
        ("POST", "/v1/conversations/a/stop"): False,
        ("POST", "/v1/chat/completions"): False,
        ("POST", "/v1/completions"): False,
        ("POST", "/v1/embeddings"): False,
        ("POST", "/v1/context_caches"): False,
        ("DELETE", "/v1/context_caches/cc-1"): True,
        ("GET", "/v1/conversations"): False,
    }
    assert {asked: is_change(dict(zip(("method", "path"), asked, strict=True))) for asked in changes} == changes


class Waiters:
    """Requests of some caller, each of which runs until it is let go of."""

    def __init__(self, changes: RequestsAtOnce):
        self.changes = changes
        self.running = list[int]()
        self.received = dict[int, list[Message]]()

    @asynccontextmanager
    async def one(self, number: int, caller: str, *messages: Message) -> AsyncIterator[asyncio.Task[None]]:
        coming: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            coming.put_nowait(message)
        task = asyncio.ensure_future(self._run(number, caller, coming, len(messages)))
        await settled()
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, number: int, caller: str, coming: asyncio.Queue[Message], messages: int) -> None:
        async with self.changes.one(caller, coming.get) as receive:
            self.running.append(number)
            self.received[number] = [await receive() for _ in range(messages)]
            await asyncio.Event().wait()


async def settled() -> None:
    """All that can go on has."""
    for _ in range(10):
        await asyncio.sleep(0)


GONE: Message = {"type": "http.disconnect"}
FIRST: Message = {"type": "http.request", "body": b"a", "more_body": True}
LAST: Message = {"type": "http.request", "body": b"b", "more_body": False}


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_a_caller_changes_so_much_at_once_and_others_do_not_wait_for_him(runner: asyncio.Runner) -> None:
    async def run() -> None:
        waiters = Waiters(changes := RequestsAtOnce(2))
        async with AsyncExitStack() as stack:
            callers = {3: "bert", 1: "anna", 2: "anna", 4: "anna", 5: "anna", 6: "bert"}
            tasks = {
                number: await stack.enter_async_context(waiters.one(number, caller, FIRST, LAST))
                for number, caller in callers.items()
            }
            assert waiters.running == [3, 1, 2, 6]
            tasks[1].cancel()
            await settled()
            assert waiters.running == [3, 1, 2, 6, 4], "in their order"
            assert waiters.received[4] == [FIRST, LAST], "nothing of it is lost"
        assert (changes._running, changes._waiting) == ({}, {}), "nothing is left of those that have ended"

    runner.run(run())


@pytest.mark.parametrize("before", [[], [LAST]])
def test_who_goes_away_waits_no_more(runner: asyncio.Runner, before: list[Message]) -> None:
    async def run() -> None:
        waiters = Waiters(changes := RequestsAtOnce(1))
        async with waiters.one(1, "anna") as first, waiters.one(2, "anna", *before, GONE) as gone:
            with pytest.raises(RefusedRequest, match="went away"):
                await gone
            async with waiters.one(3, "anna"), waiters.one(4, "anna") as cancelled:
                cancelled.cancel()
                first.cancel()
                await settled()
                assert waiters.running == [1, 3]
        assert (changes._running, changes._waiting) == ({}, {})

    runner.run(run())


def test_a_place_that_comes_as_its_client_is_cancelled_is_the_next_ones(runner: asyncio.Runner) -> None:
    async def run() -> None:
        waiters = Waiters(changes := RequestsAtOnce(1))
        async with waiters.one(1, "anna") as first, waiters.one(2, "anna") as second, waiters.one(3, "anna"):
            first.cancel()
            while len(changes._waiting["anna"]) == 2:
                await asyncio.sleep(0)
            second.cancel()
            await settled()
            assert waiters.running == [1, 3]
        assert (changes._running, changes._waiting) == ({}, {})

    runner.run(run())
