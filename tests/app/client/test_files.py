"""Lists of a server: found without reading the others, and ended where a server does not end them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.client.answers import number
from app.client.connection import ServerConnection, ServerError
from app.client.files import PROGRESS, delete_document, documents, find_document, outcome
from tests.app.client.test_connection import events, http, saying


def row(number: int, **changes: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("chunks", "tokens", "pages", "bytes", "updated"), 1)
    names = {"name": f"{number}.md", "title": "", "kind": "prose", "state": "ready"}
    return {"id": number, **names, **numbers, "error": None} | changes


def page(*numbers: int, more: bool = False) -> bytes:
    told = {"data": [row(number) for number in numbers], "has_more": more}
    return http("200 OK", "application/json", json.dumps(told).encode())


def test_a_list_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.files.PAGE", 2)
    monkeypatch.setattr("app.client.files.MOST_PAGES", 3)
    endless = [page(number, number + 1, more=True) for number in (1, 3, 5)]
    with saying(*endless) as (server, _), pytest.raises(ServerError, match="lists more than 6 documents"):
        documents(ServerConnection(server), "shelf")
    with saying(*endless[:2], page(5)) as (server, heard):
        assert [one["id"] for one in documents(ServerConnection(server), "shelf")] == [1, 2, 3, 4, 5]
    assert [b"after=%d " % last in head for last, head in zip((0, 2, 4), heard, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    "answer", [page(1, more=True), page(more=True), page(2, 1), page(1, 1), page(0, 1), page(1, 2, 3)]
)
def test_a_page_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr("app.client.files.PAGE", 2)
    with saying(answer) as (server, _), pytest.raises(ServerError, match="in a form that nobody knows"):
        documents(ServerConnection(server), "shelf")


@pytest.mark.parametrize("changes", [{"bytes": 10**400}, {"bytes": -1}, {"chunks": None}, {"id": 2.0}, {"name": 1}])
def test_a_row_of_other_values_is_an_error(changes: dict[str, Any]) -> None:
    told = {"data": [row(1, **changes)], "has_more": False}
    answer = http("200 OK", "application/json", json.dumps(told).encode())
    with saying(answer) as (server, _), pytest.raises(ServerError, match="in a form that nobody knows"):
        documents(ServerConnection(server), "shelf")


@pytest.mark.parametrize(
    "progress", [{"notes": None}, {"notes": "x"}, {"chunks": 10**400}, {"kv_bytes": "1"}, {"outcome": []}]
)
def test_a_job_of_other_values_is_an_error(progress: dict[str, Any]) -> None:
    answer = events(json.dumps({"state": "done", "progress": progress}))
    with saying(answer) as (server, _), pytest.raises(ServerError, match="in a form that nobody knows"):
        outcome(ServerConnection(server), "1")


def test_a_job_that_tells_little_has_all_the_same() -> None:
    with saying(events('{"state": "failed", "progress": {"chunks": 3}}')) as (server, _):
        told = outcome(ServerConnection(server), "1")
    assert told == {"state": "failed", "error": None, "progress": {**PROGRESS, "chunks": 3}}


def test_a_stream_of_a_job_tells_why_it_ends() -> None:
    lines = 'event: error\ndata: {"error": {"message": "this key was revoked"}}\n\n'
    with (
        saying(http("200 OK", "text/event-stream", lines.encode())) as (server, _),
        pytest.raises(ServerError, match="this key was revoked"),
    ):
        outcome(ServerConnection(server), "1")


def test_one_document_is_found_alone() -> None:
    with saying(page(7, more=True), page(8), page(), page(7)) as (server, heard):
        connection = ServerConnection(server)
        by_id, by_name = find_document(connection, "shelf", "7"), find_document(connection, "shelf", "8.md")
        assert by_id == row(7) and by_name == row(8)
        assert find_document(connection, "shelf", "a & b.md") is None
        assert find_document(connection, "shelf", "8.md") is None, "it tells of another one"
    asked = [head.split(b" ")[1].partition(b"?")[2] for head in heard]
    assert asked == [b"limit=1&after=6", b"limit=2&name=8.md", b"limit=2&name=a+%26+b.md", b"limit=2&name=8.md"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0", 0),
        ("17", 17),
        (str(2**63 - 1), 2**63 - 1),
        *((one, None) for one in ("", "-1", "+1", " 1", "1_0", "1.0", "x", "\u00b2", "\u0661\u0662", "\uff11")),
        *((one, None) for one in (str(2**63), "9" * 5000, "0" * 5000)),
    ],
)
def test_a_number_in_an_address_is_read_as_it_is_written(text: str, told: int | None) -> None:
    assert number(text) == told


def test_a_number_has_a_bound() -> None:
    assert (number("9", 8), number("08", 8), number("8", 8)) == (None, None, 8)


@pytest.mark.parametrize("name", ["9" * 5000, str(2**63), "\u0661", "0"])
def test_a_name_that_is_no_id_is_looked_for_as_a_name(name: str) -> None:
    with saying(page()) as (server, heard):
        assert find_document(ServerConnection(server), "shelf", name) is None
    assert len(heard) == 1 and b"name=" in heard[0]


@pytest.mark.parametrize(("told", "kv"), [(3, (3, True)), (0, (0, True)), (None, (0, False))])
def test_kv_that_went_is_told_to_who_may_know(told: int | None, kv: tuple[int, bool]) -> None:
    body = json.dumps({"id": 1, "deleted": True, "chunks": 2, "kv_variants": told}).encode()
    with saying(http("200 OK", "application/json", body)) as (server, _):
        gone = delete_document(ServerConnection(server), "shelf", 1)
    assert (gone["chunks"], (gone["kv_variants"], gone["kv_told"])) == (2, kv)
