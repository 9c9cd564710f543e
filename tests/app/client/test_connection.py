"""Servers that are none, break, or mean harm: each is one error, and no key goes on to another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from app.client.address import NamedServer
from app.client.answers import ask
from app.client.connection import MOST, ServerConnection, ServerError

CARD = b'{"model": "m@default"}'
PATIENCE_S = 60.0


def http(status: str, kind: str, body: bytes, *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *more]
    return "\r\n".join([*head, "", ""]).encode() + body


def events(*lines: str) -> bytes:
    return http("200 OK", "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())


@contextmanager
def saying(*answers: bytes) -> Iterator[tuple[NamedServer, list[bytes]]]:
    """A server that says these, to one request each, whatever it is asked; and what it was asked."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            for answer in answers:
                with listening.accept()[0] as asked, suppress(OSError):  # who has read enough goes away
                    heard.append(asked.recv(65536))
                    asked.sendall(answer)
                    asked.shutdown(socket.SHUT_WR)
                    while more := asked.recv(65536):
                        heard[-1] += more

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield NamedServer(False, "127.0.0.1", listening.getsockname()[1], key="rk-secret"), heard
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def answered(*answers: bytes) -> str:
    """The error of a question to a server that says these behind the card of the collection."""
    with saying(http("200 OK", "application/json", CARD), *answers) as (server, _):
        with pytest.raises(ServerError) as told, ask(ServerConnection(server), "default", "Why?", {}) as stream:
            assert stream.answer
        return str(told.value).removeprefix(server.url)


def test_a_redirect_is_not_followed() -> None:
    with saying() as (other, heard_by_other):
        away = http("307 Temporary Redirect", "text/html", b"", f"Location: {other.url}/v1/collections/default")
        with saying(away) as (server, heard):
            with pytest.raises(ServerError, match="sends elsewhere"):
                ServerConnection(server).ask("GET", "v1", "collections", "default")
            assert b"Authorization: Bearer rk-secret\r\n" in heard[0]
        assert heard_by_other == []


def test_bytes_come_as_they_are_and_of_the_kind_that_was_asked_for() -> None:
    picture = http("200 OK", "image/png", b"\x89PNG\xff")
    with saying(picture, picture, picture) as (server, heard):
        connection = ServerConnection(server)
        assert connection.data("GET", "v1", "page", query={"page": 2}) == b"\x89PNG\xff"
        assert connection.data("GET", "v1", "page", kind="image/png") == b"\x89PNG\xff"
        with pytest.raises(ServerError, match="does not answer as a RAGCache server does"):
            connection.data("GET", "v1", "page", kind="text/markdown")
        assert heard[0].startswith(b"GET /v1/page?page=2 ")
        assert b"Accept: */*\r\n" in heard[0] and b"Accept: image/png\r\n" in heard[1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (http("200 OK", "text/html", b"<html>"), " does not answer as a RAGCache server does: check the URL"),
        (http("404 Not Found", "text/html", b"<html>"), ": it answers 404, and not as a RAGCache server does"),
        (http("500 Oops", "application/json", b'{"error": 1}'), ": it answers 500, and not as a RAGCache"),
        (http("403 No", "application/json", b'{"error": {"message": "not you"}}'), ": not you"),
        (http("503 Wait", "application/json", b'{"status": "the models are being loaded"}'), ": the models are being"),
        (events("[" * 100_000), " answers in a form that nobody knows here"),
        (events("{"), " answers in a form that nobody knows here"),
        (events("7"), " answers in a form that nobody knows here"),
        (events("{}"), " answers in a form that nobody knows here"),
        (events('{"choices": 1}'), " answers in a form that nobody knows here"),
        (events('{"error": {"message": "the engine broke"}}'), ": the engine broke"),
        (events('{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}'), " before the answer's end"),
        (events('{"choices": [{"delta": {}, "finish_reason": "stop"}]}', "[DONE]"), " answers in a form that nobody"),
        (b"SSH-2.0-OpenSSH\r\n", ""),
        (b"", ""),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_one_error(answer: bytes, told: str) -> None:
    assert told in answered(answer)


@pytest.mark.parametrize(
    "about",
    [
        "7",
        '{"citations": [], "report": {"chunks": [{"tokens": -1, "repaired": 0, "tier": ""}]}, "notes": []}',
        '{"citations": [], "report": {"chunks": [], "ttft_s": "x"}, "notes": []}',
        '{"citations": [{"number": 1}], "report": {"chunks": [], "ttft_s": 1}, "notes": []}',
        '{"citations": [], "report": {"chunks": [], "ttft_s": 1}}',
    ],
)  # fmt: skip
def test_a_report_of_another_form_is_one_error(about: str) -> None:
    last = '{"choices": [{"delta": {}, "finish_reason": "stop"}], "ragcache": %s}'
    assert "answers in a form that nobody knows here" in answered(events(last % about, "[DONE]"))


def test_an_answer_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.connection.MOST", 10_000)
    assert "more than 10,000 bytes" in answered(http("200 OK", "text/event-stream", b"data: " + b"x" * 20_000))
    pieces = ['{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}'] * 1000
    assert "more than 10,000 bytes" in answered(events(*pieces))
    assert MOST > 10_000


def test_nobody_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ServerError, match=f"no answer from http://127.0.0.1:{port}: Connection refused"):
        ServerConnection(NamedServer(False, "127.0.0.1", port)).ask("GET", "v1", "models")


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "." * 9])
def test_a_host_that_is_no_name_is_told(host: str) -> None:
    for secure in (False, True):
        with pytest.raises(ServerError, match="no answer from http"):
            ServerConnection(NamedServer(secure, host, 80)).ask("GET", "v1", "models")


def test_tls_to_a_server_that_has_none_is_told() -> None:
    with saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (server, heard):
        with pytest.raises(ServerError, match="no answer from https://"):
            ServerConnection(replace(server, secure=True)).ask("GET", "v1", "models")
        assert b"rk-secret" not in heard[0]
