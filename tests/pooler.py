"""A server between PostgreSQL and its clients that gives sessions numbers of its own, as pgbouncer does."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

KEY, OTHER = b"K", 7  # the message that names a session, and how it is named here
_HEAD = struct.Struct("!cI")  # what a message is, and its length without that byte


@contextmanager
def pooled(port: int) -> Iterator[int]:
    """The port that leads to that of a server, for clients that ask for no encryption."""

    class Client(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as server, server.makefile("rb") as answers:
                threading.Thread(target=_carry, args=(self.connection, server), daemon=True).start()
                _answer(answers, self.connection)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Client) as pooler:
        serving = threading.Thread(target=pooler.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield pooler.server_address[1]
        finally:
            pooler.shutdown()
            serving.join()


def _carry(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):  # either has gone
        while data := client.recv(1 << 16):
            server.sendall(data)


def _answer(answers: BinaryIO, client: socket.socket) -> None:
    while head := answers.read(_HEAD.size):
        kind, length = _HEAD.unpack(head)
        body = answers.read(length - 4)
        if kind == KEY:
            body = struct.pack("!I", OTHER) + body[4:]
        client.sendall(head + body)
