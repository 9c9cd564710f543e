"""A server that has no room is asked again when it said, for so long and no longer, and the person is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.client.connection import PATIENCE_S, ServerConnection, ServerError
from tests.app.cli.test_main import MAIN
from tests.app.cli.test_server_client import outside
from tests.app.client.hastened import hastened
from tests.app.client.test_connection import events, http, saying
from tests.waiting import wait_until

LONG_S = 60.0
REFUSAL = b'{"error": {"message": "come again"}}'
THERE = http("200 OK", "application/json", b'{"there": 1}')


def busy(seconds: str, status: str = "429 Too Many Requests") -> bytes:
    return http(status, "application/json", REFUSAL, f"Retry-After: {seconds}")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return hastened(monkeypatch)


def ask(connection: ServerConnection) -> Any:
    return connection.ask("POST", "v1", "collections", body={"name": "shelf"})


def send(connection: ServerConnection) -> Any:
    return connection.send(lambda: iter([b"first", b"last"]), 9, "v1", "file")


def hear(connection: ServerConnection) -> Any:
    with connection.events("GET", "v1", "jobs", "1", "events") as told:
        return next(told).data


@pytest.mark.parametrize(
    ("act", "answer", "said"),
    [(ask, THERE, b'{"name": "shelf"}'), (send, THERE, b"firstlast"), (hear, events('{"there": 1}'), b"\r\n\r\n")],
)
def test_it_is_asked_again_with_all_that_was_said(
    slept: list[float],
    capsys: pytest.CaptureFixture[str],
    act: Callable[[ServerConnection], Any],
    answer: bytes,
    said: bytes,
) -> None:
    full = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with saying(busy("7"), full, answer) as (server, heard):
        assert act(ServerConnection(server)) == {"there": 1}
    assert slept == [7.0, 5.0]
    assert len(heard) == 3
    assert all(one.endswith(said) for one in heard)
    told = capsys.readouterr().err
    assert told.startswith(f"note: {server.url} has no room now (429), and is asked again for up to 600 seconds")
    assert told.count("\n") == 1


@pytest.mark.parametrize(("seconds", "waits"), [("250", [250.0] * 2), ("601", []), ("0", [1.0] * 3)])
def test_it_is_not_asked_for_ever(slept: list[float], seconds: str, waits: list[float]) -> None:
    assert PATIENCE_S == 600
    refusals = [busy(seconds)] * (len(waits) + 1)
    with saying(*refusals) as (server, _), pytest.raises(ServerError, match="come again") as told:
        ask(ServerConnection(server, 3.5) if seconds == "0" else ServerConnection(server))
    assert (told.value.answered, slept) == (429, waits)


@pytest.mark.parametrize(
    "answer",
    [
        http("503 Service Unavailable", "application/json", REFUSAL),
        busy("1", "409 Conflict"),
        busy("-1"),
        busy("\u00b2"),
        busy("9" * 5000),
        busy("Wed, 25 Nov 2026 13:00:00 GMT"),
    ],
)
def test_what_does_not_say_when_is_an_error_at_once(slept: list[float], answer: bytes) -> None:
    with saying(answer) as (server, _), pytest.raises(ServerError, match="come again"):
        ask(ServerConnection(server))
    assert slept == []


def test_who_leaves_waits_no_more() -> None:
    with saying(busy("500")) as (server, heard):
        connection = ServerConnection(server)
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(ask, connection)
            wait_until(lambda: connection._waited, LONG_S)
            connection.leave()
            with pytest.raises(ServerError, match="is left"):
                asked.result(LONG_S)
    assert len(heard) == 1


def test_an_interrupt_ends_the_wait(tmp_path: Path) -> None:
    with saying(busy("500")) as (server, _):
        command = [sys.executable, "-c", MAIN, "ls", "--server", server.url]
        with subprocess.Popen(command, cwd=tmp_path, env=outside(), stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "has no room now" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=LONG_S)
    assert process.returncode == 130
    assert "Traceback" not in told
