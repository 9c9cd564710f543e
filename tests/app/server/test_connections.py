"""Connections by raw sockets: heads that never end, answers that are never read, bodies that nobody wants."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.server import connections
from app.server.connections import BoundedConnection
from app.server.process import ServerProcess, bound
from app.server.queueing import Turns
from ragcache.errors import ConfigError
from tests.waiting import wait_until

T = TypeVar("T")
PATIENCE_S = 60.0
SOON_S = 0.3
LONG = b"x" * 65536
FEW = 4096  # bytes


class Patient(BoundedConnection):
    """A machine may stand still for a while; a test of who is sent away sets what he is sent away by to SOON_S."""

    HEAD_S = PATIENCE_S
    REST_S = PATIENCE_S
    READ_S = PATIENCE_S


class Streams:
    """An application: /endless is answered until nobody reads it, /early before the body is read, / at once."""

    def __init__(self) -> None:
        self.running = 0
        self.written = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = StreamingResponse(self._endless()) if scope["path"] == "/endless" else PlainTextResponse("here")
        self.running += 1
        try:
            await response(scope, receive, send)
        finally:
            self.running -= 1

    async def _endless(self) -> Iterator[bytes]:  # type: ignore[misc]
        while True:
            self.written += 1
            yield LONG
            await asyncio.sleep(0)


class Listening:
    def __init__(self, app: Streams, port: int, server: ServerProcess):
        self.app, self._port, self._server = app, port, server

    @property
    def held(self) -> int:
        """Connections that take a place."""
        return len(self._server.server_state.connections)

    def on_server(self, call: Callable[[Patient], T]) -> T:
        """On its own thread, with the only connection."""
        (connection,) = self._server.server_state.connections
        assert isinstance(connection, Patient)

        async def called() -> T:
            return call(connection)

        return asyncio.run_coroutine_threadsafe(called(), connection.loop).result(PATIENCE_S)

    @contextmanager
    def connected(self, *, buffer: int | None = None) -> Iterator[socket.socket]:
        with socket.socket() as client:
            client.settimeout(PATIENCE_S)
            if buffer is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.connect(("127.0.0.1", self._port))
            yield client


@pytest.fixture(params=["auto", "asyncio"])  # the former is uvloop, where that is installed
def listening(request: pytest.FixtureRequest) -> Iterator[Listening]:
    sockets = bound("127.0.0.1", 0)
    app = Streams()
    server = ServerProcess(app, Turns(1, 0), 5.0, Patient)  # type: ignore[arg-type]
    server.config.loop = request.param
    port = sockets[0].getsockname()[1]
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    wait_until(lambda: server.started, PATIENCE_S)
    yield Listening(app, port, server)
    server.should_exit = True
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def answered(client: socket.socket) -> bool:
    """When the whole of a short answer is here."""
    came = b""
    while not came.endswith(b"here"):
        came += (part := client.recv(65536))
        assert part, came
    return came.startswith(b"HTTP/1.1 200")


def is_closed(client: socket.socket) -> bool:
    """When the server has ended it, which this waits for."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_while_it_serves_no_thread_keeps_python_for_long() -> None:
    """Then as before: whoever serves from a program of his own has his setting again."""
    before, app = sys.getswitchinterval(), Streams()
    sockets = bound("127.0.0.1", 0)
    server = ServerProcess(app, Turns(1, 0), 5.0, Patient)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    wait_until(lambda: server.started, PATIENCE_S)
    during = sys.getswitchinterval()
    server.should_exit = True
    thread.join(PATIENCE_S)
    assert during == pytest.approx(0.001)
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n"])
def test_a_head_that_never_ends_is_given_up(listening: Listening, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(Patient, "HEAD_S", SOON_S)
    with listening.connected() as client:
        client.sendall(head)
        assert is_closed(client)
    assert listening.app.running == 0


def test_a_head_that_drips_is_given_up(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would begin the patience anew, were that between two of them."""
    monkeypatch.setattr(Patient, "HEAD_S", SOON_S)
    with listening.connected() as client:
        dripped = 0
        client.settimeout(0.05)
        with pytest.raises(ConnectionError):
            for letter in b"GET / HTTP/1.1\r\n" + b"X-Slow: yes\r\n" * 10_000:
                client.send(bytes([letter]))
                dripped += 1
                try:
                    if client.recv(1) == b"":
                        raise ConnectionResetError
                except TimeoutError:
                    continue
        assert dripped


def test_a_second_head_that_never_ends_is_given_up_too(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening.connected() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered(client)
        monkeypatch.setattr(Patient, "HEAD_S", SOON_S)
        client.sendall(b"GET / HT")
        assert is_closed(client)


def test_a_head_of_any_length_is_refused(listening: Listening) -> None:
    with listening.connected() as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: " + LONG)
        assert client.recv(65536).startswith(b"HTTP/1.1 400")
        assert is_closed(client)


def test_whoever_does_not_read_his_answer_loses_it(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patient, "READ_S", SOON_S)
    with listening.connected(buffer=FEW) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: listening.app.written > 2, PATIENCE_S)
        wait_until(lambda: not listening.app.running, PATIENCE_S)  # the client is still there
        assert listening.held == 0


def narrow(connection: Patient) -> None:
    """The system takes little ahead of whoever reads."""
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FEW)


def look(connection: Patient) -> bool:
    """Where it waits for him who reads, and he has read by now what he must, look as when the time is over."""
    read = connection._unread - connection.transport.get_write_buffer_size()
    if connection._reader is None or read < connection.READ_S * connection.SLOWEST:
        return False
    connection._look()
    return True


def test_whoever_reads_slowly_has_it_all(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patient, "SLOWEST", 5)
    looks = 0
    with listening.connected(buffer=FEW) as client:
        wait_until(lambda: listening.held == 1, PATIENCE_S)
        listening.on_server(narrow)
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        while listening.app.written < 50:
            assert client.recv(FEW)
            looks += listening.on_server(look)
    assert looks > 50


def test_a_body_that_nobody_wants_is_not_read_for_ever(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patient, "REST_S", SOON_S)
    with listening.connected() as client:
        client.sendall(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
        assert answered(client)
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(LONG)


def test_the_rest_of_a_body_may_come_behind_its_answer(listening: Listening) -> None:
    head = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
    with listening.connected() as client:
        for _ in range(2):  # the connection is good for another
            client.sendall(head)
            assert answered(client)
            client.sendall(b"rest")


def test_there_is_a_last_connection(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 1)
    with listening.connected():
        wait_until(lambda: listening.held == 1, PATIENCE_S)
        with listening.connected() as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 503")
            assert is_closed(client)


def test_a_port_has_one_server() -> None:
    (first,) = bound("127.0.0.1", 0)
    with closing(first), pytest.raises(ConfigError, match="cannot listen at"):
        bound("127.0.0.1", first.getsockname()[1])


def test_an_address_that_the_system_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have localhost: also as ::1, without IPv6."""
    found = socket.getaddrinfo("127.0.0.1", 0, type=socket.SOCK_STREAM)
    lacking = (*found[0][:4], ("192.0.2.1", 0))  # of an example, which no machine has
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: [lacking, *found])
    (made,) = bound("localhost", 0)
    with closing(made):
        assert made.getsockname()[0] == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: [lacking])
    with pytest.raises(ConfigError, match="cannot listen at"):
        bound("localhost", 0)
