"""A server with keys: who is let in, what each sees, and that no key is told to anybody."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import update

from app import Settings
from app.library.catalog import keys as keys_module
from app.library.catalog import open_catalog
from app.library.catalog.serving_records import KeyLimits
from app.library.catalog.serving_tables import KEYS
from app.library.catalog.tables import now
from app.server.service import model_name
from tests.app.library.catalog.samples import make_collection
from tests.app.server.serving import beside, served
from tests.waiting import wait_until


@dataclass(frozen=True)
class KeyedServer:
    client: httpx2.Client  # has no key by itself
    settings: Settings
    admin: str
    reader: str  # of the collection "default" alone
    stranger: str  # of no collection

    def get(self, path: str, key: str) -> httpx2.Response:
        return self.client.get(path, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture(scope="module")
def keyed(sampled: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    settings = beside(sampled, tmp_path_factory.mktemp("keyed"))
    with open_catalog(settings) as catalog:
        default = catalog.collections.get("default")
        _, admin = catalog.keys.create("admin", ["admin"])
        _, reader = catalog.keys.create("reader", ["read"], collections=[default])
        _, stranger = catalog.keys.create("stranger", ["read"], collections=[])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        del client.headers["Authorization"]
        yield KeyedServer(client, settings, admin, reader, stranger)


@pytest.mark.parametrize("path", ["/v1/models", "/ready", "/metrics", "/openapi.json", "/nowhere"])
def test_whoever_has_no_key_sees_nothing(keyed: KeyedServer, path: str) -> None:
    found = keyed.client.get(path)
    assert (found.status_code, found.json()["error"]["type"]) == (401, "authentication_error")
    assert found.headers["WWW-Authenticate"].startswith("Bearer")


def test_whether_it_lives_is_told_to_all(keyed: KeyedServer) -> None:
    assert keyed.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "told",
    [
        "",
        "Bearer",
        "Bearer rk-",
        "Basic YTpi",
        "Bearer rk-0123456789ab-" + "x" * 43,
        "Bearer a b",
        "Bearer " + "x" * 999,
    ],
)
def test_what_is_no_key_opens_nothing(keyed: KeyedServer, told: str) -> None:
    assert keyed.client.get("/v1/models", headers={"Authorization": told}).status_code == 401


def test_two_keys_at_once_open_nothing(keyed: KeyedServer) -> None:
    told = [("Authorization", f"Bearer {keyed.admin}"), ("Authorization", f"Bearer {keyed.reader}")]
    assert keyed.client.get("/v1/models", headers=told).status_code == 401


def test_a_body_is_not_read_before_its_sender_is_known(keyed: KeyedServer) -> None:
    body = b"x" * (keyed.settings.serve_body_bytes + 1)
    found = keyed.client.post("/v1/models", content=body, headers={"Connection": "close"})  # its rest may come late
    assert found.status_code == 401


def test_each_key_sees_its_own_collections(keyed: KeyedServer) -> None:
    own = model_name(keyed.settings.model)
    seen = {
        key: [card["id"] for card in keyed.get("/v1/models", key).json()["data"] if "@" in card["id"]]
        for key in (keyed.admin, keyed.reader, keyed.stranger)
    }
    assert [*seen.values()] == [[f"{own}@default"], [f"{own}@default"], []]


def test_a_collection_of_others_is_not_there(keyed: KeyedServer) -> None:
    own = model_name(keyed.settings.model)
    hidden = keyed.get(f"/v1/models/{own}@default", keyed.stranger)
    missing = keyed.get(f"/v1/models/{own}@elsewhere", keyed.stranger)
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("default", "elsewhere") == missing.text


def test_a_key_of_some_collections_learns_no_name_by_giving_it(keyed: KeyedServer) -> None:
    with open_catalog(keyed.settings) as catalog:
        own, hidden = (make_collection(catalog, name) for name in ("own", "hidden"))
        _, secret = catalog.keys.create("insider", ["ingest"], collections=[own])
    head = {"Authorization": f"Bearer {secret}"}
    for method, path in (("PATCH", "/v1/collections/own"), ("POST", "/v1/collections")):
        told = [keyed.client.request(method, path, json={"name": name}, headers=head) for name in ("hidden", "unheard")]
        assert [one.status_code for one in told] == [403, 403]
        assert told[0].text == told[1].text
    with open_catalog(keyed.settings) as catalog:
        assert catalog.collections.with_id(own.id) == own
        catalog.collections.delete(own)
        catalog.collections.delete(hidden)


def test_metrics_are_for_who_runs_it(keyed: KeyedServer) -> None:
    assert keyed.get("/metrics", keyed.reader).status_code == 403
    assert keyed.get("/metrics", keyed.admin).status_code == 200


def test_a_key_that_was_revoked_or_has_expired_is_none(keyed: KeyedServer) -> None:
    with open_catalog(keyed.settings) as catalog:
        gone, secret = catalog.keys.create("gone", ["read"])
        catalog.keys.revoke(gone.id)
        short, brief = catalog.keys.create("brief", ["read"], expires=now() + timedelta(hours=1))
        with catalog.database.writing() as connection:
            over = update(KEYS).where(KEYS.c.id == short.id).values(expires=now() - timedelta(seconds=1))
            connection.execute(over)
    assert keyed.get("/v1/models", secret).status_code == 401
    assert keyed.get("/v1/models", brief).status_code == 401


def test_a_key_may_ask_as_often_as_it_may(keyed: KeyedServer) -> None:
    with open_catalog(keyed.settings) as catalog:
        _, secret = catalog.keys.create("seldom", ["ingest", "read"], limits=KeyLimits(requests_per_minute=2))
    assert {keyed.get("/v1/jobs", secret).status_code for _ in range(9)} == {200}, "it waits for its files"
    assert [keyed.get("/v1/models", secret).status_code for _ in range(3)] == [200, 200, 429]
    late = keyed.get("/v1/models", secret)
    assert 1 <= int(late.headers["Retry-After"]) <= 30
    assert late.json()["error"]["type"] == "rate_limit_error"


def test_no_log_has_a_key(
    keyed: KeyedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)  # as a library in the process may do
    url = str(keyed.client.base_url).rstrip("/")
    httpx2.get(f"{url}/v1/models?key={keyed.reader}", headers={"Authorization": f"Bearer {keyed.reader}"})
    wrong = "rk-0123456789ab-" + "w" * 43
    for key in (keyed.admin, keyed.reader, wrong):
        keyed.get(f"/v1/models?key={key}", key)
        keyed.get("/metrics", key)
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert any("/v1/models 200" in line for line in ours)
    for key in (keyed.admin, keyed.reader, wrong):
        secret = key.split("-", 2)[2]
        assert [line for line in ours if secret in line] == []


def test_an_unknown_id_costs_what_a_wrong_secret_costs(keyed: KeyedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody learns from the clock which ids there are: each computes one digest of the same costs."""
    costs = []
    matches = keys_module.matches

    def counted(secret: str, stored: str) -> bool:
        costs.append(stored.split("$")[:4])
        return matches(secret, stored)

    monkeypatch.setattr(keys_module, "matches", counted)
    key_id = keyed.reader.split("-")[1]
    for told in (f"rk-{key_id}-" + "w" * 43, "rk-ffffffffffff-" + "w" * 43):
        assert keyed.get("/v1/models", told).status_code == 401
    assert len(costs) == 2
    assert costs[0] == costs[1]


def test_the_first_key_closes_a_server_that_had_none(sampled: Settings, tmp_path: Path) -> None:
    settings = beside(sampled, tmp_path)
    with served(settings) as client:
        assert client.get("/v1/models").status_code == 200
        with open_catalog(settings) as catalog:
            key, _ = catalog.keys.create("first", ["read"])
            catalog.keys.revoke(key.id)
        wait_until(lambda: client.get("/v1/models").status_code == 401, 30)
