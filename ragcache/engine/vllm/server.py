"""A vLLM server with our connector, spoken to over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

from ragcache.errors import ConfigError, ModelError
from ragcache.server_address import ServerAddress

CONNECT_S = 10.0
SILENCE_S = 600.0  # between two words of it: others may come first
MOST = 1 << 24  # bytes of a line or an answer
DONE = b"[DONE]"


class ServedRequest:
    """A connection with one request on it. Any thread may `hang_up`, which aborts it."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, line: socket.socket):
        self.answer = answer
        self._connection, self._line = connection, line

    def events(self) -> Iterator[dict[str, Any]]:
        """Of a stream, until the server says that it is done. Raises ModelError where it ends before."""
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

    def hang_up(self) -> None:
        """Does not wait."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


class VllmServer:
    """Threads share it."""

    def __init__(self, address: ServerAddress):
        self.url = address.url
        self._open = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
        self._host, self._port, self._path = address.host, address.port, address.path
        self._headers = {"Content-Type": "application/json"}
        self._headers |= {} if address.key is None else {"Authorization": f"Bearer {address.key}"}

    def models(self) -> list[dict[str, Any]]:
        """That it serves, the first one being the one that its weights are."""
        with closing(self._ask("GET", "/v1/models", None)) as asked:
            told = _object(_read(asked)).get("data")
        return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []

    def complete(self, body: dict[str, Any], silence_s: float = SILENCE_S) -> dict[str, Any]:
        """Raises ConfigError for what it refuses, ModelError where it does not answer."""
        with closing(self._ask("POST", "/v1/completions", body, silence_s)) as asked:
            return _object(_read(asked))

    def stream(self, body: dict[str, Any]) -> ServedRequest:
        """The same, as it comes. Close it."""
        return self._ask("POST", "/v1/completions", body | {"stream": True})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, silence_s: float = SILENCE_S) -> ServedRequest:
        connection = self._open(self._host, self._port, timeout=CONNECT_S)
        try:
            connection.connect()
            line: socket.socket = connection.sock
            line.settimeout(silence_s)
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
            connection.request(method, self._path + path, data, self._headers)
            asked = ServedRequest(connection, connection.getresponse(), line)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ModelError(f"the vLLM server at {self.url} does not answer: {error!r:.200}") from error
        if asked.answer.status == http.HTTPStatus.OK:
            return asked
        with closing(asked):
            raise _refusal(self.url, asked)


def _refusal(url: str, asked: ServedRequest) -> ConfigError | ModelError:
    """A ConfigError is for whoever asks us, who need not know where our server is."""
    try:
        told = _object(_read(asked)).get("error")
    except ModelError:
        told = None
    why = str(told.get("message") if isinstance(told, dict) else told)[:500]
    status = asked.answer.status
    if status in (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNPROCESSABLE_ENTITY):
        return ConfigError(f"vLLM refuses this: {why}")
    if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return ModelError(f"the vLLM server at {url} wants a key, or another one")
    return ModelError(f"the vLLM server at {url} answers {status}: {why}")


def _read(asked: ServedRequest) -> bytes:
    try:
        found = asked.answer.read(MOST)
    except (OSError, http.client.HTTPException) as error:
        raise ModelError(f"the vLLM server has gone amid an answer: {error!r:.200}") from error
    return found


def _object(text: bytes) -> dict[str, Any]:
    """Raises ModelError for all else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"the vLLM server says what is no object of JSON: {text[:80]!r}")
    return found
