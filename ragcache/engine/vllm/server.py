"""A vLLM server with our connector, spoken to over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Self

from ragcache.errors import ConfigError, ModelError
from ragcache.server_address import ServerAddress

CONNECT_S = 10.0
SILENCE_S = 600.0  # between two words of it: others may come first
MOST = 1 << 24  # bytes of a line or an answer
COMPLETIONS = "/v1/completions"
DONE = b"[DONE]"


class ServedRequest:
    """One request on a connection of its own. Any thread may `hang_up`, which aborts it, sent or not."""

    def __init__(self, server: VllmServer, method: str, path: str, body: dict[str, Any] | None, silence_s: float):
        self.answer: http.client.HTTPResponse | None = None  # once the server has begun one
        self._server, self._silence_s = server, silence_s
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        self._asked = method, server.path + path, data, server.headers
        self._connection = server.connection()
        self._line: socket.socket | None = None
        self._lock, self._left = threading.Lock(), False

    def send(self) -> Self:
        """Waits for the answer to begin. Raises ConfigError for what is refused, ModelError where nobody answers."""
        try:
            self._connection.connect()
            self._connection.sock.settimeout(self._silence_s)
            with self._lock:
                self._line = self._connection.sock
            if self._left:
                raise ConnectionAbortedError("it was hung up")
            self._connection.request(*self._asked)
            self.answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ModelError(f"the vLLM server at {self._server.url} does not answer: {error!r:.200}") from error
        if self.answer.status != http.HTTPStatus.OK:
            with closing(self):
                raise self._refusal(self.answer.status)
        return self

    def events(self) -> Iterator[dict[str, Any]]:
        """Of a stream, until the server says that it is done. Raises ModelError where it ends before."""
        assert self.answer is not None
        try:
            while line := self.answer.readline(MOST):
                said = line.removeprefix(b"data:").strip()
                if said == DONE:
                    return
                if line.startswith(b"data:"):
                    yield _object(said)
        except (OSError, http.client.HTTPException, ValueError) as error:  # closed meanwhile: also a ValueError
            raise ModelError(f"the vLLM server has gone amid an answer: {error!r:.200}") from error
        raise ModelError("the vLLM server has ended an answer amid it")

    def read(self) -> dict[str, Any]:
        """All of an answer. Raises ModelError."""
        assert self.answer is not None
        try:
            found = self.answer.read(MOST)
        except (OSError, http.client.HTTPException) as error:
            raise ModelError(f"the vLLM server has gone amid an answer: {error!r:.200}") from error
        return _object(found)

    def hang_up(self) -> None:
        """Does not wait."""
        self._left = True
        with self._lock, suppress(OSError):
            if self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.answer is not None:
            self.answer.close()
        self._connection.close()

    def _refusal(self, status: int) -> ConfigError | ModelError:
        """A ConfigError is for whoever asks us, who need not know where our server is."""
        try:
            told = self.read().get("error")
        except ModelError:
            told = None
        why = str(told.get("message") if isinstance(told, dict) else told)[:500]
        if status in (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNPROCESSABLE_ENTITY):
            return ConfigError(f"vLLM refuses this: {why}")
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return ModelError(f"the vLLM server at {self._server.url} wants a key, or another one")
        return ModelError(f"the vLLM server at {self._server.url} answers {status}: {why}")


class VllmServer:
    """Threads share it."""

    def __init__(self, address: ServerAddress):
        self.url, self.path = address.url, address.path
        self._open = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
        self._host, self._port = address.host, address.port
        self.headers = {"Content-Type": "application/json"}
        self.headers |= {} if address.key is None else {"Authorization": f"Bearer {address.key}"}

    def connection(self) -> http.client.HTTPConnection:
        """Not yet open."""
        return self._open(self._host, self._port, timeout=CONNECT_S)

    def models(self) -> list[dict[str, Any]]:
        """That it serves, the first one being the one that its weights are."""
        with closing(ServedRequest(self, "GET", "/v1/models", None, SILENCE_S)) as asked:
            told = asked.send().read().get("data")
        return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []

    def complete(self, body: dict[str, Any], silence_s: float = SILENCE_S) -> dict[str, Any]:
        """Raises ConfigError for what it refuses, ModelError where it does not answer."""
        with closing(ServedRequest(self, "POST", COMPLETIONS, body, silence_s)) as asked:
            return asked.send().read()

    def stream(self, body: dict[str, Any]) -> ServedRequest:
        """The same, as it comes, once it is sent. Close it."""
        return ServedRequest(self, "POST", COMPLETIONS, body | {"stream": True}, SILENCE_S)


def _object(text: bytes) -> dict[str, Any]:
    """Raises ModelError for all else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"the vLLM server says what is no object of JSON: {text[:80]!r}")
    return found
