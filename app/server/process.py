"""The process that serves: where it listens, and how it ends."""

from __future__ import annotations

import errno
import signal
import socket
import sys
from contextlib import ExitStack
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.server.connections import BoundedConnection
from app.server.queueing import Turns
from ragcache.errors import ConfigError

UNLOADED = "the models cannot be loaded: "  # as its log says it, and why
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
SWITCH_S = 0.001  # for which the engine's thread may keep Python from the one that sends its tokens: usually it is 5


class ServerProcess(uvicorn.Server):
    """A first signal ends it: nothing new begins, streams have `grace_s` to come to their ends, and then it closes what
    it serves. A second one ends it at once, as it is.
    """

    def __init__(
        self, app: FastAPI, turns: Turns, grace_s: float, connection: type[BoundedConnection] = BoundedConnection
    ):
        config = uvicorn.Config(
            app,
            http=connection,
            ws="none",
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=grace_s,  # type: ignore[arg-type]  # any number of seconds does
        )
        super().__init__(config)
        self._turns = turns

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, SWITCH_S))
        try:
            super().run(sockets)
        finally:
            sys.setswitchinterval(before)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._turns.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        super().handle_exit(sig, frame)


def bound(host: str, port: int) -> list[socket.socket]:
    """At each address of a name, all with one port, which no other process can have from now on; who connects waits
    until somebody serves. Raises ConfigError.
    """
    absent: OSError | None = None
    with ExitStack() as made:
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found):
                chosen = sockets[0].getsockname()[1] if sockets else port
                try:
                    sock = _listening((family, kind, protocol), (address[0], chosen, *address[2:]))
                except OSError as error:
                    if error.errno not in NOT_HERE:
                        raise
                    absent = error  # of a name that has others, as localhost has where IPv6 is off
                else:
                    sockets.append(made.enter_context(sock))
            if absent is not None and not sockets:
                raise absent
        except OSError as error:
            raise ConfigError(f"cannot listen at {host} port {port}: {error.strerror or error}") from None
        made.pop_all()
    return sockets


def _listening(kind: tuple[int, int, int], address: tuple[str | int, ...]) -> socket.socket:
    """From now on: two may be bound to a port that nobody listens at. Raises OSError."""
    with ExitStack() as made:
        sock = made.enter_context(socket.socket(*kind))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind[0] == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen()
        made.pop_all()
    return sock


def check_models(log: str) -> None:
    """Of a server that starts. Raises ConfigError where it will never be ready."""
    if UNLOADED in log:
        raise ConfigError(f"the server has no model: {log.partition(UNLOADED)[2].splitlines()[0]}")
