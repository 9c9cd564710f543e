"""What the cache was good for, over HTTP: counted as answers report it, told before it is done, and within borders."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from app import Settings
from app.cachecare.history import CacheRecorder
from app.library.catalog import open_catalog
from app.samples import read_samples
from app.server.service import Service
from tests.app.server.serving import served, serving
from tests.app.server.uploads import PATIENCE_S, sent
from tests.waiting import wait_until

TEXT = read_samples()["lighthouse.md"]
SHELVES = {"harbour": TEXT, "copies": TEXT}  # two collections with the same text
Headers = Mapping[str, str]


@dataclass(frozen=True)
class WatchedServer:
    client: httpx2.Client  # of an admin
    service: Service
    settings: Settings
    keys: Mapping[str, Headers]  # "reader" and "tender" are of "harbour" alone, "stranger" of "copies"

    def get(self, path: str, headers: Headers | None = None, **query: Any) -> dict[str, Any]:
        response = self.client.get(path, params=query, headers=headers)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def history(self, headers: Headers | None = None, **query: Any) -> dict[str, Any]:
        return self.get("/v1/cache/history", headers, **query)

    def reused(self, headers: Headers | None = None, **query: Any) -> list[dict[str, Any]]:
        return list(self.get("/v1/cache/reused", headers, **query)["data"])

    def effects(self, name: str = "harbour", headers: Headers | None = None) -> dict[str, Any]:
        return self.get(f"/v1/collections/{name}/cache", headers)

    def asks(self, name: str = "harbour", headers: Headers | None = None, **body: Any) -> str:
        """A question in a conversation of its own -> the conversation."""
        made = self.client.post("/v1/conversations", json={"collection": name}, headers=headers)
        path = f"/v1/conversations/{made.json()['id']}"
        body = {"question": "Who designed the lighthouse?", "stream": False, "max_tokens": 3} | body
        answer = self.client.post(f"{path}/messages", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        self.service.pipeline.settle()  # what it lacked is kept
        return path

    def report(self, path: str, headers: Headers | None = None) -> dict[str, Any]:
        return dict(self.get(f"{path}/messages", headers)["data"][-1]["report"])

    def tended(self, method: str, action: str, name: str = "harbour", headers: Headers | None = None) -> dict[str, Any]:
        response = self.client.request(method, f"/v1/collections/{name}/cache/{action}", headers=headers)
        assert response.is_success, response.text
        return dict(response.json())

    def warmed(self, name: str = "harbour", headers: Headers | None = None) -> dict[str, Any]:
        job = self.tended("POST", "warm", name, headers)

        def look() -> dict[str, Any]:
            return dict(self.client.get(f"/v1/jobs/{job['id']}").json())

        wait_until(lambda: look()["state"] == "done", PATIENCE_S, lambda: str(look()))
        return dict(look()["progress"])


@pytest.fixture
def watched(tiny_folder: Path, tmp_path: Path) -> Iterator[WatchedServer]:
    settings = Settings(
        model=str(tiny_folder),
        data_dir=tmp_path / "data",
        cache_dir=tmp_path / "cache",
        kv="on-use",
        link_when="always",
    )
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
    service = Service(settings)
    with serving(service, {"Authorization": f"Bearer {admin}"}) as client:
        for name, text in SHELVES.items():
            assert client.post("/v1/collections", json={"name": name}).status_code == 201
            assert sent(client, "<b>lighthouse.md", text, name)["state"] == "done"
        with open_catalog(settings) as catalog:
            harbour, copies = (catalog.collections.get(name) for name in SHELVES)
            made = {
                "reader": catalog.keys.create("reader", ["read"], collections=[harbour])[1],
                "tender": catalog.keys.create("tender", ["read", "ingest"], collections=[harbour])[1],
                "stranger": catalog.keys.create("stranger", ["admin"], collections=[copies])[1],
            }
        keys = {name: {"Authorization": f"Bearer {key}"} for name, key in made.items()}
        yield WatchedServer(client, service, settings, keys)


def test_what_answers_report_is_what_is_counted(watched: WatchedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    second = int(time.time()) // 60 * 60
    # All within one hour and day.
    monkeypatch.setattr(CacheRecorder, "_second", lambda recorder: second)
    monkeypatch.setattr("app.library.catalog.cache_history.time", SimpleNamespace(time=lambda: second))
    watched.warmed()
    reports = [watched.report(watched.asks()) for _ in range(2)]
    found = watched.history(step="hour")
    for name in ("reused", "repaired"):
        assert found["total"][name] == sum(one[name] for one in reports) > 0, name
    computed = sum(chunk["computed"] for one in reports for chunk in one["chunks"])
    assert (found["total"]["answers"], found["total"]["computed"]) == (2, computed)
    assert sum(found["total"]["tiers"].values()) == found["total"]["reused"]
    served = found["total"]["reused"] + found["total"]["repaired"]
    assert found["total"]["hit_rate"] == served / (served + computed)
    assert found["total"]["ttft_s"] == pytest.approx(sum(one["ttft_s"] for one in reports))
    (point,) = found["data"]
    assert point["start"] >= found["since"] and point["start"] % found["seconds"] == 0
    for step in ("minute", "day"):
        assert watched.history(step=step)["total"] == found["total"], step
    watched.asks(linker="full")  # which uses no cache, and so tells nothing of it
    assert watched.history(step="hour")["total"] == found["total"]


def test_chunks_are_counted_where_they_served(watched: WatchedServer) -> None:
    watched.warmed()
    report = watched.report(watched.asks())
    watched.asks()
    found = watched.reused()
    assert {one["uses"] for one in found} == {2}
    assert sum(one["reused"] for one in found) == watched.history(step="day")["total"]["reused"]
    assert len(found) == sum(chunk["reused"] > 0 for chunk in report["chunks"])
    for one in found:
        assert one["text"] and TEXT[one["start"] : one["end"]].startswith(one["text"])
        assert (one["name"], one["collection"]) == ("<b>lighthouse.md", "harbour")
        assert one["bytes"] > 0 and set(one["tiers"]) == {"ram", "disk"}
    assert watched.reused(limit=1) == found[:1]


def test_a_saving_is_measured_by_an_answer_without_cache(watched: WatchedServer) -> None:
    watched.warmed()
    cost = watched.effects()["cost"]
    assert (cost["saved_s"], cost["compared"], cost["questions"]) == (None, 0, None), "never invented"
    assert cost["captured_s"] > 0
    path = watched.asks()
    again = watched.client.post(f"{path}/again", json={"stream": False, "max_tokens": 3}).json()
    saved = again["answer"]["report"]["ttft_s"] - watched.report(path)["ttft_s"]
    told = watched.history(step="hour")["total"]
    assert (told["answers"], told["measured"]) == (1, {"answers": 1, "seconds": pytest.approx(saved)})
    cost = watched.effects()["cost"]
    assert (cost["compared"], cost["saved_s"], cost["answers"]) == (1, pytest.approx(saved), 1)
    questions = -(-cost["captured_s"] // saved) if saved > 0 else None
    assert cost["questions"] == questions


def test_effects_are_told_before_and_come_true(watched: WatchedServer) -> None:
    before = watched.effects()
    chunks, missing = before["collection"]["chunks"], before["warm"]
    assert (missing["chunks"], before["evict"]["entries"], before["pin"]["entries"]) == (chunks, 0, 0)
    assert missing["takes"]["basis"] in (None, "estimated")
    done = watched.warmed()
    assert done["kv_variants"] == missing["chunks"]
    assert done["tokens"] == pytest.approx(missing["tokens"], rel=0.02), "with what stands between chunks in a prompt"
    after = watched.effects()
    assert after["collection"]["bytes"] == pytest.approx(missing["bytes"], rel=0.25)
    assert (after["warm"]["chunks"], after["warm"]["takes"]["seconds"]) == (0, 0.0)
    assert after["ever"]["captured"] == done["tokens"]
    assert after["collection"] == next(
        one for one in watched.get("/v1/cache")["collections"] if one["name"] == "harbour"
    )

    assert after["evict"]["entries"] == 0, "another collection has the same text"
    assert watched.tended("POST", "evict")["entries"] == 0
    watched.client.delete("/v1/collections/copies")
    told = watched.effects()["evict"]
    assert (told["tokens"], told["again"]["basis"]) == (missing["tokens"], "measured")
    assert told["again"]["seconds"] == pytest.approx(after["cost"]["captured_s"], rel=0.02)

    pin = watched.effects()["pin"]
    kept = watched.tended("PUT", "pin")
    assert (pin["entries"], pin["bytes"], pin["pinned"]) == (kept["entries"], kept["bytes"], kept["bytes"])
    assert pin["most"] == round(0.4 * watched.settings.disk_bytes)
    assert watched.effects()["evict"]["entries"] == 0, "what is pinned stays"
    watched.tended("DELETE", "pin")
    gone = watched.tended("POST", "evict")
    assert (gone["entries"], gone["bytes"]) == (told["entries"], told["bytes"])


def test_keys_of_different_collections_see_nothing_of_each_other(watched: WatchedServer) -> None:
    """Both collections have the same text, so the admin's answers from one warm it for the other too."""
    watched.warmed()
    for _ in range(2):
        watched.asks()
    reader, stranger = watched.keys["reader"], watched.keys["stranger"]
    nothing = watched.history(stranger)
    assert (nothing["data"], nothing["total"]["answers"], nothing["total"]["captured"]) == ([], 0, None)
    assert watched.reused(stranger) == []
    alone = watched.effects("copies", stranger)
    assert (alone["ever"]["answers"], alone["ever"]["captured"], alone["collection"]["cached"]) == (0, None, 0)
    assert alone["warm"]["takes"]["basis"] != "measured", "the pace of another collection is none of it"
    assert (alone["cost"]["captured_s"], alone["pin"]["pinned"]) == (None, None), "they would tell what others have"
    for path in ("/v1/cache/history", "/v1/cache/reused"):
        refused = watched.client.get(path, params={"collection": "harbour"}, headers=stranger)
        assert refused.status_code == 404
    assert watched.client.get("/v1/collections/harbour/cache", headers=stranger).status_code == 404

    mine = watched.reused(reader)
    assert {one["collection"] for one in mine} == {"harbour"}
    assert {(one["bytes"], *one["tiers"]) for one in mine} == {(0,)}, "KV of everybody does not serve this key"
    watched.asks(headers=reader)
    assert watched.history(step="day", collection="harbour")["total"]["answers"] == 3
    assert watched.history(stranger)["total"]["answers"] == 0


def test_what_a_key_may_not_do_is_not_told(watched: WatchedServer) -> None:
    told = {name: watched.effects(headers=watched.keys[name]) for name in ("reader", "tender")}
    assert [told["reader"][name] for name in ("warm", "evict", "pin")] == [None, None, None]
    assert told["tender"]["warm"] and told["tender"]["evict"] and told["tender"]["pin"] is None
    assert watched.client.get("/v1/cache/history", params={"step": "year"}).status_code == 400
    assert watched.client.get("/v1/cache/reused", params={"limit": 1000}).status_code == 400


def test_it_outlasts_the_server(watched: WatchedServer) -> None:
    watched.warmed()
    watched.asks()
    watched.client.post("/v1/conversations")  # whatever comes behind
    before = watched.history(step="day"), watched.reused()
    headers = {"Authorization": watched.client.headers["Authorization"]}
    with served(watched.settings, headers) as other:  # beside the first, over the same folders
        told = other.get("/v1/cache/history", params={"step": "day"}).json()
        assert told["total"] == before[0]["total"]
        assert [one["uses"] for one in other.get("/v1/cache/reused").json()["data"]] == [1] * len(before[1])


def test_without_kv_there_is_nothing_to_tell(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="off")
    with served(settings) as client:
        assert client.post("/v1/collections", json={"name": "shelf"}).status_code == 201
        told = client.get("/v1/collections/shelf/cache").json()
        assert (told["warm"], told["evict"]["entries"], told["cost"]["captured_s"]) == (None, 0, None)
        assert client.get("/v1/cache/reused").json()["data"] == []
        assert client.get("/v1/cache/history").json()["total"]["hit_rate"] is None
