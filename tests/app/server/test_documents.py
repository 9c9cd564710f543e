"""Collections and documents over HTTP: files are jobs, names are data, and what a key may not see is not there."""

from __future__ import annotations

import socket
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from sqlalchemy import text

from app import Settings
from app.ingestion.spool import FOLDER
from app.library.catalog import open_catalog
from app.samples import read_samples
from app.server.problems import LATER_S
from tests.app.server.event_streams import asked
from tests.app.server.serving import served
from tests.app.server.uploads import PATIENCE_S, sent
from tests.waiting import wait_until

MOST = 200_000
NOTE = read_samples()["lighthouse.md"]
HOSTILE = [
    "..%2F..%2Fetc%2Fpasswd.md",
    "a%00.md",
    "%2Fetc%2Fpasswd.md",
    quote("x" * 300 + ".md"),
    "a%0Ab.md",
    "..%5Cb.md",
    "caf%E8.md",
]


@pytest.fixture(scope="module")
def settings(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("sent")
    return Settings(
        model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", serve_upload_bytes=MOST
    )


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[httpx2.Client]:
    with served(settings) as client:
        assert client.post("/v1/collections", json={"name": "shelf"}).status_code == 201
        yield client


def files(settings: Settings) -> list[Path]:
    """Those of jobs that failed stay, so that they can be tried again."""
    return [path for path in (settings.data_dir / FOLDER).rglob("*.*") if path.is_file()]


def test_a_file_becomes_a_document_that_answers(client: httpx2.Client, settings: Settings) -> None:
    job = sent(client, "lighthouse.md", NOTE)
    assert (job["state"], job["name"], job["collection"]) == ("done", "lighthouse.md", "shelf")
    listed = client.get("/v1/collections/shelf/documents").json()["data"]
    (one,) = [document for document in listed if document["name"] == "lighthouse.md"]
    assert one["chunks"] > 0
    whole = client.get(f"/v1/collections/shelf/documents/{one['id']}").json()
    assert "Lighthouse" in whole["text"]
    assert all(0 <= chunk["start"] < chunk["end"] <= len(whole["text"]) for chunk in whole["chunks"])
    model = client.get("/v1/collections/shelf").json()["model"]
    body = {"model": model, "messages": [{"role": "user", "content": "Who designed it?"}], "max_tokens": 4}
    about = client.post("/v1/chat/completions", json=body).json()["ragcache"][0]
    assert {citation["document_id"] for citation in about["citations"]} == {one["id"]}
    assert files(settings) == []


def test_documents_come_in_pages_and_by_name(client: httpx2.Client) -> None:
    place = "/v1/collections/paged/documents"
    assert client.post("/v1/collections", json={"name": "paged"}).status_code == 201
    for name in ("c.txt", "a & b.txt", "b.txt"):
        sent(client, name, f"This is {name}.", "paged")
    whole = client.get(place).json()
    assert [one["name"] for one in whole["data"]] == ["c.txt", "a & b.txt", "b.txt"]
    assert not whole["has_more"]
    first = client.get(place, params={"limit": 2}).json()
    assert (first["data"], first["has_more"]) == (whole["data"][:2], True)
    rest = client.get(place, params={"limit": 1, "after": first["data"][-1]["id"]}).json()
    assert (rest["data"], rest["has_more"]) == (whole["data"][2:], False)
    assert client.get(place, params={"name": "a & b.txt"}).json()["data"] == whole["data"][1:2]
    for none in ({"name": "nope.txt"}, {"name": "b.txt", "state": "failed"}):
        assert client.get(place, params=none).json() == {"object": "list", "data": [], "has_more": False}


def test_a_name_is_found_in_either_form_of_its_letters(client: httpx2.Client) -> None:
    forms = [unicodedata.normalize(form, "Café.txt") for form in ("NFC", "NFD")]
    job = sent(client, quote(forms[1]), "It has an accent.")
    assert job["name"] == forms[0]
    for name in forms:
        (one,) = client.get("/v1/collections/shelf/documents", params={"name": name}).json()["data"]
        assert (one["id"], one["name"]) == (job["progress"]["document"], forms[0])


def test_the_same_name_is_a_new_version(client: httpx2.Client) -> None:
    first = sent(client, "version.txt", "The first version says little.")
    again = sent(client, "version.txt", "The second version says other things.")
    assert again["progress"]["document"] == first["progress"]["document"]
    found = client.get(f"/v1/collections/shelf/documents/{first['progress']['document']}").json()
    assert "second" in found["text"]


def test_the_text_of_a_document_is_read_without_its_lines(client: httpx2.Client, settings: Settings) -> None:
    document = sent(client, "lined.txt", "Its lines are broken.")["progress"]["document"]
    with open_catalog(settings) as catalog, catalog.database.writing() as connection:
        connection.execute(text("UPDATE documents SET lines = :none WHERE id = :id"), {"none": b"", "id": document})
    found = client.get(f"/v1/collections/shelf/documents/{document}")
    assert (found.status_code, found.json()["text"]) == (200, "Its lines are broken.")


def test_a_deleted_document_is_gone(client: httpx2.Client) -> None:
    document = sent(client, "gone.txt", "This one is to go.")["progress"]["document"]
    assert client.delete(f"/v1/collections/shelf/documents/{document}").json()["deleted"]
    for _ in range(2):
        assert client.get(f"/v1/collections/shelf/documents/{document}").status_code == 404
    assert client.delete(f"/v1/collections/shelf/documents/{document}").status_code == 404


def test_a_file_without_a_suffix_is_taken_by_its_name(client: httpx2.Client) -> None:
    assert sent(client, "README", "It is read first.")["state"] == "done"
    assert client.put("/v1/collections/shelf/documents/noname", content=b"words").status_code == 422


def test_what_cannot_be_read_says_why(client: httpx2.Client, settings: Settings) -> None:
    job = sent(client, "broken.pdf", b"%PDF-1.7 and then nothing of one")
    assert job["state"] == "failed"
    assert job["error"].startswith("broken.pdf")
    assert client.get("/health").status_code == 200
    tried = client.post(f"/v1/jobs/{job['id']}/retry")
    assert (job["progress"]["final"], tried.status_code) == (True, 409)
    assert "send it again" in tried.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", iter([b"", b""])])
def test_a_file_without_a_byte_is_refused(client: httpx2.Client, body: bytes | Iterator[bytes]) -> None:
    found = client.put("/v1/collections/shelf/documents/empty.txt", content=body)
    assert (found.status_code, "0 bytes" in found.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_no_path(client: httpx2.Client, settings: Settings, name: str) -> None:
    before = {path for path in settings.data_dir.parent.rglob("*") if path.suffix == ".md"}
    found = client.put(f"/v1/collections/shelf/documents/{name}", content=b"# Owned")
    assert found.status_code in (400, 404, 405), found.text
    assert {path for path in settings.data_dir.parent.rglob("*") if path.suffix == ".md"} == before


def test_a_kind_that_nobody_reads_is_refused(client: httpx2.Client) -> None:
    found = client.put("/v1/collections/shelf/documents/program.exe", content=b"MZ")
    assert found.status_code == 422
    assert "program.exe" in found.json()["error"]["message"]


def test_where_too_many_wait_it_is_told_when_to_come_again(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ingestion.queue.MOST_WAITING", 0)
    found = client.put("/v1/collections/shelf/documents/late.txt", content=b"One too many.")
    assert (found.status_code, found.headers["Retry-After"]) == (429, str(LATER_S))


def test_too_long_a_file_is_refused_at_once_and_while_it_comes(client: httpx2.Client, settings: Settings) -> None:
    before = files(settings)
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port), PATIENCE_S) as told:
        head = f"PUT /v1/collections/shelf/documents/long.txt HTTP/1.1\r\nHost: {host}:{port}\r\n"
        told.sendall(f"{head}Content-Length: {10 * 1024**3}\r\n\r\n".encode())
        assert b" 413 " in told.recv(4096)

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    found = client.put("/v1/collections/shelf/documents/long.txt", content=endless())
    assert found.status_code == 413
    wait_until(lambda: files(settings) == before, PATIENCE_S, lambda: str(files(settings)))


def test_a_client_that_goes_away_leaves_nothing(client: httpx2.Client, settings: Settings) -> None:
    before = files(settings)
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port), PATIENCE_S) as left:
        head = f"PUT /v1/collections/shelf/documents/left.txt HTTP/1.1\r\nHost: {host}:{port}\r\n"
        left.sendall(f"{head}Content-Length: 100000\r\n\r\nand some of it".encode())
        wait_until(lambda: files(settings) != before, PATIENCE_S)
    wait_until(lambda: files(settings) == before, PATIENCE_S, lambda: str(files(settings)))
    names = [one["name"] for one in client.get("/v1/collections/shelf/documents").json()["data"]]
    assert "left.txt" not in names


def test_events_of_a_job_end_with_it(client: httpx2.Client) -> None:
    job = client.put("/v1/collections/shelf/documents/told.md", content=read_samples()["bakery.md"]).json()
    with asked(client, "GET", f"/v1/jobs/{job['id']}/events") as events:
        seen = list(events)
    assert [one.name for one in seen] == ["job"] * len(seen)
    assert [one.mark for one in seen] == [str(number) for number in range(len(seen))]
    assert seen[-1].data["state"] == "done"
    assert client.delete(f"/v1/jobs/{job['id']}").json()["state"] == "done"
    assert any(one["id"] == job["id"] for one in client.get("/v1/jobs").json()["data"])


def test_a_collection_is_made_renamed_and_deleted(client: httpx2.Client) -> None:
    assert client.post("/v1/collections", json={"name": "brief"}).json()["documents"] == 0
    assert client.post("/v1/collections", json={"name": "brief"}).status_code == 409
    for name in ("a/b", "caf\ufffd"):
        assert client.post("/v1/collections", json={"name": name}).status_code == 400
    sent(client, "one.txt", "One document, of a few words.", "brief")
    assert client.patch("/v1/collections/brief", json={"name": "short"}).json()["name"] == "short"
    assert client.patch("/v1/collections/short", json={"name": "shelf"}).status_code == 409
    assert client.get("/v1/collections/brief").status_code == 404
    assert client.delete("/v1/collections/short").json()["documents"] == 1
    assert "short" not in [one["name"] for one in client.get("/v1/collections").json()["data"]]


@pytest.mark.parametrize("path", ["collections/nope", "collections/nope/documents", "jobs/nope", "jobs/nope/events"])
def test_what_is_not_there_is_told(client: httpx2.Client, path: str) -> None:
    assert client.get(f"/v1/{path}").status_code == 404


@pytest.mark.parametrize("document", ["-1", str(2**70), "0", "999999"])
def test_a_document_that_is_not_there_is_told(client: httpx2.Client, document: str) -> None:
    assert client.get(f"/v1/collections/shelf/documents/{document}").status_code == 404
