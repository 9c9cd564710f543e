"""The KV cache over HTTP: its figures, and that warming, eviction and pins do what they say, for whom they may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import Settings
from app.library.catalog import open_catalog
from app.samples import read_samples
from app.server.service import Service
from tests.app.server.serving import served, serving
from tests.app.server.uploads import PATIENCE_S, sent
from tests.waiting import wait_until

SAMPLES = {"harbour": "lighthouse.md", "town": "bakery.md", "desert": "meerkats.md"}


@dataclass(frozen=True)
class TendedServer:
    client: httpx2.Client  # of an admin
    service: Service
    settings: Settings
    bordered: Mapping[str, str]  # headers of a key that reads and ingests in "harbour" alone
    stranger: Mapping[str, str]  # and of one that administers "town" alone

    def cached(self, name: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        (found,) = [one for one in self.state(headers)["collections"] if one["name"] == name]
        return dict(found)

    def state(self, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        return dict(self.client.get("/v1/cache", headers=headers).json())

    def warmed(self, name: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        job = self.client.post(f"/v1/collections/{name}/cache/warm", headers=headers)
        assert job.status_code == 202, job.text
        return self.ended(job.json()["id"])

    def ended(self, job: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            return dict(self.client.get(f"/v1/jobs/{job}").json())

        wait_until(lambda: look()["state"] in ("done", "failed", "cancelled"), PATIENCE_S, lambda: str(look()))
        return look()

    def report(self, name: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        model = self.client.get(f"/v1/collections/{name}").json()["model"]
        body = {"model": model, "messages": [{"role": "user", "content": "Who is it about?"}], "max_tokens": 2}
        answer = self.client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        self.service.pipeline.settle()  # what it lacked is kept
        return dict(answer.json()["ragcache"][0]["report"])

    def files(self) -> int:
        return sum(path.stat().st_size for path in self.settings.kv_folder.rglob("*.kv"))


@pytest.fixture
def tended(tiny_folder: Path, tmp_path: Path) -> Iterator[TendedServer]:
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="on-use", linker="query"
    )
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
    service = Service(settings)
    with serving(service, {"Authorization": f"Bearer {admin}"}) as client:
        for name, sample in SAMPLES.items():
            assert client.post("/v1/collections", json={"name": name}).status_code == 201
            assert sent(client, sample, read_samples()[sample], name)["state"] == "done"
        with open_catalog(settings) as catalog:
            harbour, town = (catalog.collections.get(name) for name in ("harbour", "town"))
            _, bordered = catalog.keys.create("bordered", ["read", "ingest"], collections=[harbour])
            _, stranger = catalog.keys.create("stranger", ["admin"], collections=[town])
        headers = ({"Authorization": f"Bearer {key}"} for key in (bordered, stranger))
        yield TendedServer(client, service, settings, *headers)


def test_what_is_warmed_serves_and_what_is_evicted_does_not(tended: TendedServer) -> None:
    assert tended.cached("harbour")["cached"] == 0
    assert tended.report("desert")["reused"] == 0, "so it is where nothing was warmed"
    job = tended.warmed("harbour")
    chunks = tended.cached("harbour")["chunks"]
    assert (job["state"], job["kind"], job["progress"]["chunks"]) == ("done", "warm", chunks)
    assert not {"last", "model"} & job["progress"].keys(), "a digest of the system prompt may be guessed at"
    full = tended.cached("harbour")
    assert (full["cached"], full["entries"] > 0, full["bytes"] > 0) == (chunks, True, True)
    assert tended.report("harbour")["reused"] > 0
    again = tended.warmed("harbour")
    assert (again["progress"]["kv_variants"], again["progress"]["kv_bytes"]) == (0, 0)

    tended.warmed("town")
    town, before = tended.cached("town"), tended.files()
    gone = tended.client.post("/v1/collections/town/cache/evict").json()
    assert (gone["done"], gone["entries"], gone["bytes"]) == ("evicted", town["entries"], town["bytes"])
    assert tended.files() == before - gone["bytes"]
    assert {name: tended.cached("town")[name] for name in ("cached", "entries", "bytes")} == dict.fromkeys(
        ("cached", "entries", "bytes"), 0
    )
    assert tended.cached("harbour") == full
    assert tended.report("town")["reused"] == 0


def test_what_is_pinned_stays_until_it_is_let_go(tended: TendedServer) -> None:
    path = "/v1/collections/town/cache"
    tended.warmed("town")
    full = tended.cached("town")
    pinned = tended.client.put(f"{path}/pin").json()
    assert (pinned["done"], pinned["entries"], pinned["bytes"]) == ("pinned", full["entries"], full["bytes"])
    assert tended.cached("town")["pinned_bytes"] == full["bytes"]
    assert tended.client.post(f"{path}/evict").json()["entries"] == 0
    assert tended.cached("town")["entries"] == full["entries"]
    let_go = tended.client.delete(f"{path}/pin").json()
    assert (let_go["done"], let_go["entries"]) == ("unpinned", full["entries"])
    assert tended.client.post(f"{path}/evict").json()["entries"] == full["entries"]


def test_a_key_within_a_border_is_warmed_within_it(tended: TendedServer) -> None:
    tended.warmed("harbour")
    everybodys = tended.cached("harbour")
    assert tended.cached("harbour", tended.bordered)["cached"] == 0, "none of everybody's KV serves it"
    job = tended.warmed("harbour", tended.bordered)
    assert (job["state"], job["progress"]["kv_variants"] > 0) == ("done", True)
    own = tended.cached("harbour", tended.bordered)
    assert own["cached"] == own["chunks"]
    assert tended.cached("harbour")["entries"] == everybodys["entries"] + own["entries"], "an admin is told of both"
    assert tended.report("harbour", tended.bordered)["reused"] > 0
    gone = tended.client.post("/v1/collections/harbour/cache/evict", headers=tended.bordered).json()
    assert gone["entries"] == own["entries"]


def test_what_is_deleted_leaves_no_kv_within_a_border(tended: TendedServer) -> None:
    job = tended.warmed("harbour", tended.bordered)
    assert tended.client.get(f"/v1/jobs/{job['id']}", headers=tended.stranger).status_code == 404
    own = tended.cached("harbour", tended.bordered)
    (document,) = tended.client.get("/v1/collections/harbour/documents").json()["data"]
    gone = tended.client.delete(f"/v1/collections/harbour/documents/{document['id']}").json()
    assert gone["kv_variants"] == own["entries"] > 0
    assert sent(tended.client, "again.md", read_samples()[SAMPLES["harbour"]], "harbour")["state"] == "done"
    assert tended.cached("harbour", tended.bordered)["cached"] == 0


def test_each_key_sees_and_tends_what_it_may(tended: TendedServer) -> None:
    whole = tended.state()
    assert {one["name"] for one in whole["collections"]} == set(SAMPLES)
    assert {one["tier"]: one["order"] for one in whole["tiers"]} == {"ram": "value", "disk": "value"}
    for headers, name in ((tended.bordered, "harbour"), (tended.stranger, "town")):
        told = tended.state(headers)
        assert ([one["name"] for one in told["collections"]], told["tiers"]) == ([name], None)
    for method, action in (("POST", "warm"), ("POST", "evict"), ("PUT", "pin"), ("DELETE", "pin")):
        for name in ("harbour", "nope"):
            path = f"/v1/collections/{name}/cache/{action}"
            assert tended.client.request(method, path, headers=tended.stranger).status_code == 404
        if action == "pin":
            path = f"/v1/collections/harbour/cache/{action}"
            assert tended.client.request(method, path, headers=tended.bordered).status_code == 403


def test_whoever_works_on_a_collection_does_so_alone(tended: TendedServer) -> None:
    path = "/v1/collections/desert/cache"
    with open_catalog(tended.settings) as catalog, catalog.alone(catalog.collections.get("desert")):
        job = tended.client.post(f"{path}/warm").json()
        assert tended.client.post(f"{path}/warm").status_code == 409
        assert tended.client.post(f"{path}/evict").status_code == 409
        wait_until(lambda: tended.client.get(f"/v1/jobs/{job['id']}").json()["state"] == "running", PATIENCE_S)
        tended.client.delete(f"/v1/jobs/{job['id']}")
        assert tended.ended(job["id"])["state"] == "cancelled"
        assert tended.cached("desert")["cached"] == 0
        retried = tended.client.post(f"/v1/jobs/{job['id']}/retry").json()
    assert tended.ended(retried["id"])["state"] == "done"
    assert tended.cached("desert")["cached"] > 0


@pytest.fixture
def keyed(tiny_folder: Path, tmp_path: Path) -> Iterator[tuple[httpx2.Client, dict[str, str]]]:
    """Where KV is computed at once: an admin's client, and the head of a key of "harbour" alone."""
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        for name in ("harbour", "town"):
            assert client.post("/v1/collections", json={"name": name}).status_code == 201
        with open_catalog(settings) as catalog:
            own = catalog.collections.get("harbour")
            _, key = catalog.keys.create("insider", ["ingest", "admin"], collections=[own])
        yield client, {"Authorization": f"Bearer {key}"}


def test_nothing_tells_whether_another_collection_has_a_text(
    keyed: tuple[httpx2.Client, dict[str, str]],
) -> None:
    """Whoever guesses it, and sends it to his own collection, is told the same as of a text that nobody has."""
    client, head = keyed
    secret, unknown = (f"The pump was sold in {year}, to a brewer of Tarrow." for year in (1846, 1857))
    assert sent(client, "ledger.md", secret, "town")["progress"]["kv_variants"] > 0

    def asked(method: str, path: str) -> dict[str, Any]:
        found = client.request(method, f"/v1/{path}", headers=head)
        assert found.status_code == 200, found.text
        return dict(found.json())

    def told(text: str) -> list[Any]:
        """All that the key is told of it, but for ids and moments."""
        (before,) = asked("GET", "cache")["collections"]
        job = sent(client, "guess.md", text, "harbour")
        (after,) = asked("GET", "cache")["collections"]
        progress = asked("GET", f"jobs/{job['id']}")["progress"]
        (card,) = asked("GET", "collections/harbour/documents?kv=true")["data"]
        pinned = asked("PUT", "collections/harbour/cache/pin")
        (kept,) = asked("GET", "cache")["collections"]
        let_go = asked("DELETE", "collections/harbour/cache/pin")
        evicted = asked("POST", "collections/harbour/cache/evict")
        gone = asked("DELETE", f"collections/harbour/documents/{progress.pop('document')}")
        listed = [(card["cached"], card["chunks"]), gone["chunks"], gone["kv_variants"]]
        return [before, after, progress | {"seconds_left": None}, pinned, kept, let_go, evicted, listed]

    assert told(secret) == told(unknown)
    assert client.get("/metrics", headers=head).status_code == 403, "tiers, tokens and jobs are of all together"
    assert client.get("/v1/cache").json()["collections"][1]["entries"] > 0, "whoever sees all is told of all"
