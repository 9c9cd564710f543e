"""Requests to one server. No redirect is followed, so its key reaches nobody else; what it says has bounds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Event, Lock
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from app.client.address import KEY, NamedServer
from ragcache.errors import RagcacheError

CONNECT_S = 10.0
ANSWER_S = 600.0  # without a byte: a question may wait for its turn
PATIENCE_S = 600.0  # of one request, with a server that has no room and says when to come again
LATER = (429, 503)
MOST = 64 * 1024**2  # bytes of one response
MOST_OF_ERROR = 64 * 1024
# Where things are at a server.
CACHE, COLLECTIONS, CONVERSATIONS, JOBS = (("v1", name) for name in ("cache", "collections", "conversations", "jobs"))
EVENTS, JSON, ANY = "text/event-stream", "application/json", "*/*"
DONE = "[DONE]"
# Of values that are not as told.
UNKNOWN = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
_SECONDS = re.compile(r"[0-9]{1,9}")
Record = Mapping[str, Any]


class ServerError(RagcacheError):
    """A server that is not there, refuses, or says what nobody understands."""

    status = 502

    def __init__(self, message: str, answered: int | None = None):
        """`answered`: the status that it refused with."""
        super().__init__(message)
        self.answered = answered


@dataclass(frozen=True)
class ServerEvent:
    """`name` is "" for one that has none."""

    name: str
    data: Any


class ServerConnection:
    """Each request has a connection of its own, which ends with it: a server keeps quiet ones open for seconds only.

    Whoever leaves the block of `events` early goes away, and the server ends an answer that is for nobody. What it has
    no room for is asked again when it said, which is told on stderr once.
    """

    CONNECT_S: ClassVar[float] = CONNECT_S

    def __init__(self, server: NamedServer, patience_s: float = PATIENCE_S):
        self.server = server
        self._patience_s = patience_s
        self._waited = False
        self._lock = Lock()  # of both below
        self._sockets: set[socket] = set()  # of what is asked now
        self._leaving = Event()

    def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """What it answers. The parts of the path may hold any characters of Unicode. Raises ServerError."""
        with self._response(method, _path(path, query), _encoded(body), JSON) as response:
            return self._json(self._read(response, MOST))

    def data(self, method: str, *path: str, query: Mapping[str, Any] | None = None, kind: str | None = None) -> bytes:
        """What it answers as it is, such as a picture of a page. `kind`: its media type, where only one will do."""
        with self._response(method, _path(path, query), None, kind or ANY) as response:
            return self._read(response, MOST)

    def send(self, data: Callable[[], Iterable[bytes]], nbytes: int, *path: str) -> Any:
        """PUT so many bytes, as they are. `data` has them from the first one each time that it is called."""
        with self._response("PUT", _path(path), data, JSON, {"Content-Length": str(nbytes)}) as response:
            return self._json(self._read(response, MOST))

    @contextmanager
    def events(self, method: str, *path: str, body: Mapping[str, Any] | None = None) -> Iterator[Iterator[ServerEvent]]:
        with self._response(method, _path(path), _encoded(body), EVENTS) as response:
            yield self._events(response)

    def beside(self) -> ServerConnection:
        """One more to that server."""
        return ServerConnection(self.server, self._patience_s)

    @property
    def left(self) -> bool:
        return self._leaving.is_set()

    def leave(self) -> None:
        """From any thread: what is asked now ends by a ServerError where it waits, and nothing is asked any more."""
        with self._lock:
            self._leaving.set()
            for one in self._sockets:
                with suppress(OSError):  # the server has ended it just now
                    socket.shutdown(one, SHUT_RDWR)  # of TLS too: what its own one forgets, another thread reads by

    @contextmanager
    def _response(
        self,
        method: str,
        path: str,
        body: bytes | Callable[[], Iterable[bytes]] | None,
        kind: str,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        left = self._patience_s
        while True:
            data = body() if callable(body) else body
            with self._asked(method, path, data, kind, headers) as response:
                pause = _pause(response)
                if pause is None or pause > left:
                    self._check(response, kind)
                    yield response
                    return
            left -= pause
            self._wait(pause, response.status)

    def _wait(self, seconds: float, status: int) -> None:
        if not self._waited:
            told = f"{self.server.url} has no room now ({status}), and is asked again for up to {self._patience_s:.0f}"
            print(f"note: {told} seconds a request; Ctrl-C ends that", file=sys.stderr)
        self._waited = True
        if self._leaving.wait(seconds):
            raise self._no_more()

    @contextmanager
    def _asked(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        kind: str,
        headers: Mapping[str, str] | None,
    ) -> Iterator[HTTPResponse]:
        server = self.server
        made = HTTPSConnection if server.secure else HTTPConnection
        connection = made(server.host, server.port, timeout=self.CONNECT_S)
        told = {"Accept": kind, "User-Agent": "ragcache", **(headers or {})}
        told |= {} if server.key is None else {"Authorization": f"Bearer {server.key}"}
        told |= {"Content-Type": JSON} if isinstance(body, bytes) else {}
        asked: socket | None = None
        try:
            try:
                connection.connect()
                connection.sock.settimeout(ANSWER_S)
                self._asks(asked := connection.sock)
                with suppress(ConnectionError):  # it may have answered before it had all of a file
                    connection.request(method, f"{server.path}/{path}", body, told)
                response = connection.getresponse()
            except (OSError, HTTPException, UnicodeError) as error:  # the last of a host that is no name
                raise ServerError(f"no answer from {server.url}: {_reason(error)}") from error
            with response:  # it has the socket to itself where the server closes it behind
                yield response
        finally:
            if asked is not None:
                with self._lock:
                    self._sockets.discard(asked)
            connection.close()

    def _asks(self, by: socket) -> None:
        with self._lock:
            if self.left:
                raise self._no_more()
            self._sockets.add(by)

    def _no_more(self) -> ServerError:
        return ServerError(f"{self.server.url} is left, and asked nothing any more")

    def _check(self, response: HTTPResponse, kind: str) -> None:
        status, url = response.status, self.server.url
        if 300 <= status < 400:
            raise ServerError(f"{url} sends elsewhere ({status}), where the key is not taken: name that server itself")
        if status >= 400:
            raise ServerError(f"{url}: {self._refusal(response)}", status)
        if kind not in (ANY, response.headers.get_content_type()):
            raise ServerError(f"{url} does not answer as a RAGCache server does: check the URL")

    def _refusal(self, response: HTTPResponse) -> str:
        try:
            answer = self._json(self._read(response, MOST_OF_ERROR))
            # A server that is not ready tells its status alone.
            message = str(answer["error"]["message"] if "error" in answer else answer["status"])
        except (ServerError, LookupError, TypeError):
            return f"it answers {response.status}, and not as a RAGCache server does: check the URL"
        if response.status != 401:
            return message
        return f"{message} ({KEY} is {'not set' if self.server.key is None else 'the one that was sent'})"

    def _read(self, response: HTTPResponse, most: int) -> bytes:
        try:
            data = response.read(most + 1)
        except (OSError, HTTPException) as error:
            raise self._broken(error) from error
        if len(data) > most:
            raise ServerError(f"{self.server.url} answers with more than {most:,} bytes")
        return data

    def _events(self, response: HTTPResponse) -> Iterator[ServerEvent]:
        name, left = "", MOST
        while line := self._line(response, left):
            left -= len(line)
            field, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data" and value == DONE:
                return
            elif field == "data":
                yield ServerEvent(name, self._json(value))
                name = ""

    def _line(self, response: HTTPResponse, left: int) -> bytes:
        try:
            line = response.readline(left + 1)
        except (OSError, HTTPException) as error:
            raise self._broken(error) from error
        if len(line) > left:
            raise ServerError(f"{self.server.url} answers with more than {MOST:,} bytes")
        return line

    def _json(self, text: str | bytes) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self.unknown() from None

    def record(self, told: Any) -> Record:
        """What it answered, as an object. Raises ServerError for what is none."""
        if not isinstance(told, dict):
            raise self.unknown()
        return told

    def records(self, told: Any, name: str = "data") -> list[Record]:
        """The list of objects of this name in what it answered."""
        with self.understood():
            return [dict(one) for one in told[name]]

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Values that are read in the block and are not as told become a ServerError."""
        try:
            yield
        except UNKNOWN:
            raise self.unknown() from None

    def unknown(self) -> ServerError:
        return ServerError(f"{self.server.url} answers in a form that nobody knows here: is it of another version?")

    def unfinished(self) -> ServerError:
        return ServerError(f"{self.server.url} went away before the answer's end")

    def _broken(self, error: Exception) -> ServerError:
        return ServerError(f"{self.server.url} went away amid its answer: {_reason(error)}")


def _encoded(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _path(parts: Sequence[str], query: Mapping[str, Any] | None = None) -> str:
    """Raises ServerError for what is no UTF-8: a server would take another name for it."""
    try:
        path = "/".join(quote(one, safe="", errors="strict") for one in parts)
        return f"{path}?{urlencode(query)}" if query else path
    except UnicodeEncodeError as error:
        raise ServerError(f"{error.object!r} is no UTF-8, and servers take no other names") from None


def _pause(response: HTTPResponse) -> float | None:
    """In how many seconds a server without room is to be asked again, where it says so."""
    told = _SECONDS.fullmatch(response.headers.get("Retry-After", ""))
    return max(1.0, float(told[0])) if told and response.status in LATER else None


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else None
    return told or str(error) or type(error).__name__
