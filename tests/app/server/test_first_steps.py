"""Samples, first questions, how far files are, which chunks have KV: for those alone who may see the collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app import Settings
from app.library.catalog import open_catalog
from app.samples import read_samples
from tests.app.server.serving import served
from tests.app.server.uploads import PATIENCE_S, sent
from tests.waiting import wait_until

SHELF = "/v1/collections/shelf"
LONG = "\n\n".join(f"The pump of station {one} was repaired in {1900 + one}." * 9 for one in range(40))


@pytest.fixture(scope="module")
def settings(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("first")
    return Settings(model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache")


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[httpx2.Client]:
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        for name in ("shelf", "other"):
            assert client.post("/v1/collections", json={"name": name}).status_code == 201
        yield client


@pytest.fixture(scope="module")
def heads(client: httpx2.Client, settings: Settings) -> dict[str, dict[str, str]]:
    with open_catalog(settings) as catalog:
        shelf, other = catalog.collections.get("shelf"), catalog.collections.get("other")
        keys = {
            "reader": catalog.keys.create("reader", ["read"], collections=[shelf])[1],
            "keeper": catalog.keys.create("keeper", ["admin"], collections=[other])[1],
            "stranger": catalog.keys.create("stranger", ["read", "ingest"], collections=[other])[1],
        }
    return {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()}


def test_samples_are_documents_like_others(client: httpx2.Client) -> None:
    found = client.post(f"{SHELF}/samples")
    assert found.status_code == 202
    jobs = {one["name"]: one["id"] for one in found.json()["data"]}
    assert set(jobs) == set(read_samples())
    wait_until(
        lambda: all(client.get(f"/v1/jobs/{one}").json()["state"] == "done" for one in jobs.values()), PATIENCE_S
    )
    assert {one["name"] for one in client.get(f"{SHELF}/documents").json()["data"]} >= set(jobs)
    questions = client.get(f"{SHELF}/questions").json()["data"]
    assert 0 < len(questions) <= 4
    assert questions == client.get(f"{SHELF}/questions").json()["data"]
    assert client.get("/v1/collections/other/questions").json()["data"] == []


def test_a_job_tells_its_stages(client: httpx2.Client) -> None:
    job = sent(client, "pumps.md", LONG)
    assert job["state"] == "done", job
    chunks = job["progress"]["chunks"]
    assert job["progress"]["stages"] == {
        "read": {"done": 1, "of": 1},
        **{name: {"done": chunks, "of": chunks} for name in ("split", "embedded", "kv")},
    }


def test_chunks_tell_whether_kv_serves_whoever_asks(client: httpx2.Client, heads: dict[str, dict[str, str]]) -> None:
    number = sent(client, "quays.md", LONG.replace("pump", "quay"))["progress"]["document"]
    place = f"{SHELF}/documents/{number}"
    assert {one["cached"] for one in client.get(place).json()["chunks"]} == {None}
    whole = client.get(place, params={"kv": True}).json()
    assert {one["cached"] for one in whole["chunks"]} == {True}
    (listed,) = client.get(f"{SHELF}/documents", params={"kv": True, "name": "quays.md"}).json()["data"]
    assert listed["cached"] == listed["chunks"]
    bordered = client.get(place, params={"kv": True}, headers=heads["reader"]).json()
    assert {one["cached"] for one in bordered["chunks"]} == {False}  # it was computed beyond the border of that key


def test_what_a_document_repeats_is_counted_as_often_as_it_stands_in_it(client: httpx2.Client) -> None:
    text = "\n\n".join(["# The same again", "The pump of the station was repaired in spring. " * 40] * 12)
    number = sent(client, "again.md", text)["progress"]["document"]
    spans = client.get(f"{SHELF}/documents/{number}").json()["chunks"]
    assert len({text[one["start"] : one["end"]] for one in spans}) < len(spans), "some chunks are the same text"
    (listed,) = client.get(f"{SHELF}/documents", params={"kv": True, "name": "again.md"}).json()["data"]
    assert listed["cached"] == listed["chunks"] == len(spans)
    for limit, status in ((200, 200), (201, 400)):
        page = client.get(f"{SHELF}/documents", params={"kv": True, "limit": limit})
        assert page.status_code == status, page.text


def test_jobs_are_chosen_before_they_are_cut(client: httpx2.Client, heads: dict[str, dict[str, str]]) -> None:
    """However many others are newer."""
    bells = sent(client, "bells.md", "# Bells\n\nThey ring.", "other")["id"]
    sent(client, "hulls.md", "# Hulls\n\nThey are green.")

    def listed(head: str = "", **query: str) -> list[str]:
        found = client.get("/v1/jobs", params={"limit": 1, **query}, headers=heads[head] if head else None)
        assert found.status_code == 200, found.text
        return [one["id"] for one in found.json()["data"]]

    assert listed(collection="other") == listed(collection="other", kind="ingest") == [bells] != listed()
    assert listed(kind="warm") == []
    assert listed("keeper") == [bells], "it sees those of all keys, in its collection"
    assert listed("stranger") == [], "another key sent it"
    refused = client.get("/v1/jobs", params={"collection": "shelf"}, headers=heads["keeper"])
    unknown = client.get("/v1/jobs", params={"collection": "nowhere"}, headers=heads["keeper"])
    assert (refused.status_code, unknown.status_code) == (404, 404)
    assert refused.json()["error"]["message"].replace("shelf", "nowhere") == unknown.json()["error"]["message"]
    assert client.get("/v1/jobs", params={"kind": "odd"}).status_code == 400


def test_who_may_not_see_a_collection_is_told_of_none(client: httpx2.Client, heads: dict[str, dict[str, str]]) -> None:
    stranger, reader = heads["stranger"], heads["reader"]
    asked = [client.get(f"{SHELF}/questions", headers=stranger), client.post(f"{SHELF}/samples", headers=stranger)]
    assert [one.status_code for one in asked] == [404, 404]
    assert client.get(f"{SHELF}/questions", headers=reader).status_code == 200
    assert client.post(f"{SHELF}/samples", headers=reader).status_code == 403
