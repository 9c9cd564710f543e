"""Connections that nobody holds by doing nothing: a head that never ends, an answer that is never read."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 1000  # connections, or half of the files that the process may open
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class BoundedConnection(H11Protocol):
    """uvicorn bounds how long a head is in bytes, and how long a connection is idle before one begins. This adds: the
    seconds until it has come whole; those in which what was written must be read, as fast as the slowest client may be;
    and those in which the rest of a body comes whose request is answered already.
    """

    HEAD_S: ClassVar[float] = 10.0
    REST_S: ClassVar[float] = 2.0
    READ_S: ClassVar[float] = 30.0
    SLOWEST: ClassVar[int] = 1024  # bytes per second

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.access_log = False  # whatever others in this process make of that logger: it would tell paths and queries
        self._head: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # told of the first byte that the client's side does not take
        _end_where_nobody_answers(transport, self.READ_S)
        self._head = self.loop.call_later(self.HEAD_S, transport.close)
        if len(self.connections) > most_connections():
            transport.write(_FULL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = _ended(self._head)
        elif self._head is None:
            self._head = self.loop.call_later(self.HEAD_S, self.transport.close)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            _ended(self._head)
            self._head = self.loop.call_later(self.REST_S, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader = _ended(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._reader = _ended(self._head), _ended(self._reader)
        super().connection_lost(exc)

    def _look_later(self) -> None:
        _ended(self._reader)
        self._unread = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(self.READ_S, self._look)

    def _look(self) -> None:
        """To abort it is as if the client had gone: the request is cancelled, and what it holds is free."""
        if self._unread - self.transport.get_write_buffer_size() >= self.READ_S * self.SLOWEST:
            self._look_later()
        else:
            self.transport.abort()


def most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None, in its place."""
    if timer is not None:
        timer.cancel()
    return None


def _end_where_nobody_answers(transport: asyncio.Transport, seconds: float) -> None:
    """What was sent to a machine that is gone, without a word, is given up after that; Linux alone has it."""
    name = getattr(socket, "TCP_USER_TIMEOUT", None)
    sock = transport.get_extra_info("socket")
    if name is not None and sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, name, int(seconds * 1000))
