"""Budgets over HTTP: what other ones would do is told and comes true, and they hold for all that goes by them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import Settings
from app.library.catalog import open_catalog
from app.samples import read_samples
from app.server.service import Service
from ragcache.host import free_bytes
from tests.app.server.serving import served, serving
from tests.app.server.uploads import sent

PATH = "/v1/cache/budgets"
MIB = 1 << 20
BODIES_ALONE: list[dict[str, Any]] = [{"disk_bytes": True}, {"tape_bytes": 1}]  # in a query there is no type, and more
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ram_bytes": -1}, "ram_bytes"),
    ({"disk_bytes": 2**63}, "disk_bytes"),
    ({"ram_bytes": "many"}, "ram_bytes"),
    ({"ram_bytes": 1.5}, "ram_bytes"),
    ({"disk_bytes": True}, "disk_bytes"),
    ({"tape_bytes": 1}, "tape_bytes"),
    ({"ram_bytes": 0}, "a budget of 0 bytes for ram: give more"),
    ({"disk_bytes": 2**63 - 1}, "give at most"),
    ({"ram_bytes": 1, "disk_bytes": 0}, "a budget of 0 bytes for disk"),
]


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="eager", linker="query"
    )


@pytest.fixture
def service(settings: Settings) -> Service:
    return Service(settings)


@pytest.fixture
def admin(service: Service) -> Iterator[httpx2.Client]:
    """Of a server that has answered each of two questions twice, and kept what the answers lacked."""
    with serving(service) as client:
        assert client.post("/v1/collections", json={"name": "harbour"}).status_code == 201
        assert sent(client, "lighthouse.md", read_samples()["lighthouse.md"], "harbour")["state"] == "done"
        for question in 2 * ("Who designed it?", "When was it lit?"):
            ask(client, question)
        service.pipeline.settle()
        yield client


def ask(client: httpx2.Client, question: str) -> dict[str, Any]:
    model = client.get("/v1/collections/harbour").json()["model"]
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 2}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["ragcache"][0]["report"])


def told(response: httpx2.Response) -> dict[str, dict[str, Any]]:
    assert response.status_code == 200, response.text
    return {one["tier"]: one for one in response.json()["tiers"]}


def tiers(client: httpx2.Client) -> dict[str, dict[str, Any]]:
    return {one["tier"]: one for one in client.get("/v1/cache").json()["tiers"]}


def refused(response: httpx2.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["error"]["message"])


def test_what_is_told_ahead_comes_true(admin: httpx2.Client, settings: Settings) -> None:
    before, now = tiers(admin), told(admin.get(PATH))
    assert {name: (one["budget"], one["bytes"], one["evicted_entries"]) for name, one in now.items()} == {
        "ram": (settings.ram_bytes, before["ram"]["bytes"], 0),
        "disk": (settings.disk_bytes, before["disk"]["bytes"], 0),
    }
    assert now["ram"]["uses"] > 0 and now["ram"]["hit_rate"] == now["ram"]["hit_rate_asked"] == 1.0
    assert [one["setting"] for one in now.values()] == ["RAGCACHE_RAM_BYTES", "RAGCACHE_DISK_BYTES"]
    asked = {f"{name}_bytes": one["bytes"] // 2 for name, one in before.items()}
    ahead = told(admin.get(PATH, params=asked))
    assert tiers(admin) == before, "nothing has changed"
    assert ahead["ram"]["hit_rate_asked"] < 1.0
    after = told(admin.put(PATH, json=asked))
    for name, one in after.items():
        assert one["evicted_entries"] > 0 and one["evicted_bytes"] > 0
        for field in ("evicted_entries", "evicted_bytes", "budget_asked"):
            assert one[field] == ahead[name][field], (name, field)
        assert one["bytes"] == before[name]["bytes"] - one["evicted_bytes"] <= one["budget"] == asked[f"{name}_bytes"]
    assert {name: one["budget"] for name, one in tiers(admin).items()} == {
        name: asked[f"{name}_bytes"] for name in after
    }
    assert ask(admin, "Who designed it?")["answer_tokens"] > 0


def test_what_is_left_out_or_null_keeps_its_budget(admin: httpx2.Client, settings: Settings) -> None:
    for body in ({}, {"ram_bytes": None, "disk_bytes": None}):
        assert [one["budget"] for one in told(admin.put(PATH, json=body)).values()] == [
            settings.ram_bytes,
            settings.disk_bytes,
        ]
    changed = told(admin.put(PATH, json={"ram_bytes": 9 * MIB}))
    assert [one["budget"] for one in changed.values()] == [9 * MIB, settings.disk_bytes]


def test_what_cannot_be_is_refused_and_changes_nothing(admin: httpx2.Client) -> None:
    before = tiers(admin)
    for body, reason in REFUSED:
        assert reason in refused(admin.put(PATH, json=body), 400)
        if body not in BODIES_ALONE:
            assert reason in refused(admin.get(PATH, params=body), 400)
    assert tiers(admin) == before


def test_the_disk_gives_no_more_than_it_has(admin: httpx2.Client, settings: Settings) -> None:
    most = free_bytes(settings.kv_folder) + tiers(admin)["disk"]["bytes"]
    message = refused(admin.put(PATH, json={"disk_bytes": most + (1 << 40)}), 400)
    assert "free beside" in message
    assert told(admin.put(PATH, json={"disk_bytes": most // 2}))["disk"]["budget"] == most // 2


def test_pins_and_what_is_kept_follow_the_budget_in_force(admin: httpx2.Client, service: Service) -> None:
    disk = tiers(admin)["disk"]["bytes"]
    assert told(admin.put(PATH, json={"disk_bytes": disk}))["disk"]["evicted_entries"] == 0
    assert f"of the disk's budget of {disk:,}" in refused(admin.put("/v1/collections/harbour/cache/pin"), 400)
    body = {"texts": ["The lamp is lit at dusk, and put out at dawn."], "pinned": True}
    refused(admin.post("/v1/context_caches", json=body | {"texts": 200 * body["texts"]}), 400)
    assert told(admin.put(PATH, json={"disk_bytes": 3 * disk}))["disk"]["budget"] == 3 * disk
    pinned = admin.put("/v1/collections/harbour/cache/pin").json()
    assert pinned["entries"] > 0
    shrunk = told(admin.put(PATH, json={"disk_bytes": 1}))["disk"]
    assert shrunk["bytes"] >= pinned["bytes"] > 1, "what is pinned stays"
    assert admin.delete("/v1/collections/harbour/cache/pin").status_code == 200
    assert tiers(admin)["disk"]["bytes"] == 0, "until it is let go"
    assert service.pipeline.models.disk_bytes == 1


def test_budgets_may_change_while_prompts_are_answered(admin: httpx2.Client) -> None:
    sizes, done = {name: one["bytes"] for name, one in tiers(admin).items()}, threading.Event()

    def resize(place: int) -> None:
        while not done.is_set():
            for share in (1, 8, 3, 16):
                body = {f"{name}_bytes": max(1, nbytes * share // (8 + place)) for name, nbytes in sizes.items()}
                after = told(admin.put(PATH, json=body))
                assert [one["budget"] for one in after.values()] == list(body.values()), "of this change alone"

    with ThreadPoolExecutor(2) as pool:
        changing = [pool.submit(resize, place) for place in range(2)]
        try:
            for question in 3 * ("Who designed it?", "When was it lit?"):
                assert ask(admin, question)["answer_tokens"] > 0
        finally:
            done.set()
        for one in changing:
            one.result()
    for name, one in tiers(admin).items():
        assert one["bytes"] <= one["budget"], name


def test_only_who_administers_all_may(settings: Settings) -> None:
    with open_catalog(settings) as catalog:
        keys = {scope: catalog.keys.create(scope, [scope])[1] for scope in ("read", "ingest", "admin")}
    with served(settings, {"Authorization": f"Bearer {keys['admin']}"}) as client:
        assert client.post("/v1/collections", json={"name": "shelf"}).status_code == 201
        with open_catalog(settings) as catalog:
            shelf = catalog.collections.get("shelf")
            keys["part"] = catalog.keys.create("part", ["admin"], collections=[shelf])[1]
        for name, reason in (("read", "scope"), ("ingest", "scope"), ("part", "some collections alone")):
            headers = {"Authorization": f"Bearer {keys[name]}"}
            assert reason in refused(client.get(PATH, headers=headers), 403)
            assert reason in refused(client.put(PATH, headers=headers, json={"ram_bytes": 1}), 403)
        assert tiers(client)["ram"]["budget"] == settings.ram_bytes
        assert told(client.put(PATH, json={"ram_bytes": MIB}))["ram"]["budget"] == MIB


def test_a_tier_that_was_left_out_gets_none(settings: Settings) -> None:
    with served(settings.model_copy(update={"ram_bytes": 0})) as client:
        assert list(told(client.get(PATH))) == ["disk"]
        for response in (client.put(PATH, json={"ram_bytes": 9}), client.get(PATH, params={"ram_bytes": 9})):
            assert "no tier 'ram' can have a budget, but disk" in refused(response, 400)


@pytest.mark.parametrize(
    ("change", "reason"), [({"kv": "off"}, "RAGCACHE_KV=off"), ({"engine": "vllm-server"}, "kv_connector_extra_config")]
)
def test_where_the_kv_is_not_its_own_it_says_so(settings: Settings, change: dict[str, Any], reason: str) -> None:
    """Nothing listens at the address of the vLLM server, and nobody asks it: the settings say where the KV is."""
    with served(settings.model_copy(update=change), waits=False) as client:
        for response in (client.get(PATH), client.put(PATH, json={"disk_bytes": 9})):
            assert reason in refused(response, 409)
