"""What one client can do to the server and to others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from app.errors import CatalogError, NotFound
from app.library.catalog import open_catalog
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits
from app.server import collections, conversations
from app.server.callers import Caller
from app.server.openai.request_format import chat_starts
from app.server.openai.schemas import ChatRequest
from app.server.problems import BROKEN, RefusedRequest, shown
from app.server.service import Service
from ragcache.errors import PromptError
from ragcache.types import VariantKey
from tests.app.server.event_streams import asked
from tests.app.server.serving import beside, served
from tests.waiting import wait_until

Keyed = tuple[httpx2.Client, dict[str, str]]  # and what each key is told as
LONG = {"question": "Who designed the lighthouse?", "max_tokens": 1200, "temperature": 2.0, "seed": 1}


@pytest.fixture(scope="module")
def narrow(sampled: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Of a server that makes one answer at a time, and has no queue."""
    settings = beside(sampled, tmp_path_factory.mktemp("narrow"))
    with RagPipeline(settings) as pipeline:
        odd = settings.data_dir / os.fsdecode(b"caf\xe9.md")
        odd.write_text("# Coffee\n\nIt was first served on a Monday in 1901.\n")
        assert pipeline.ingest(odd, collection="odd").added == 1
    with served(settings.model_copy(update={"serve_concurrent": 1, "serve_queue": 0})) as client:
        yield client


def model(client: httpx2.Client) -> str:
    return str(client.get("/v1/models").json()["data"][0]["id"])


def chat(client: httpx2.Client, **more: Any) -> dict[str, Any]:
    return {"model": model(client), "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 2, **more}


def test_who_goes_away_from_an_answer_that_goes_on_has_no_second_turn(narrow: httpx2.Client) -> None:
    path = f"/v1/conversations/{narrow.post('/v1/conversations', json={}).json()['id']}"
    other = f"/v1/conversations/{narrow.post('/v1/conversations', json={}).json()['id']}"
    with asked(narrow, "POST", f"{path}/messages", json=LONG) as events:
        next(events)
    bodies = {
        f"{other}/messages": LONG,
        f"{path}/again": {},
        "/v1/chat/completions": chat(narrow),
        "/v1/embeddings": {"model": "minilm", "input": "a"},
        "/v1/context_caches": {"texts": ["a"]},
    }
    codes = {where: narrow.post(where, json=body).json()["error"]["code"] for where, body in bodies.items()}
    assert codes == dict.fromkeys(bodies, "queue_full")
    narrow.post(f"{path}/stop")
    wait_until(lambda: not narrow.get(path).json()["answering"], 60)
    again = {"question": "What is baked?", "stream": False, "max_tokens": 2}
    assert narrow.post(f"{other}/messages", json=again).status_code == 200


def test_what_is_refused_in_its_turn_gives_it_back(narrow: httpx2.Client) -> None:
    path = f"/v1/conversations/{narrow.post('/v1/conversations', json={}).json()['id']}"
    for body in (LONG | {"linker": "none of them"}, LONG | {"max_tokens": 1 << 30}):
        assert [narrow.post(f"{path}/messages", json=body).status_code for _ in range(2)] == [400, 400]
    assert narrow.post("/v1/chat/completions", json=chat(narrow)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_many_choices_have_one_turn(narrow: httpx2.Client, stream: bool) -> None:
    told = narrow.post("/v1/chat/completions", json=chat(narrow, n=5, stream=stream))
    assert [f'"index":{number}' in told.text for number in range(6)] == [True] * 5 + [False]
    assert narrow.post("/v1/chat/completions", json=chat(narrow)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_whose_name_is_no_text_is_cited(narrow: httpx2.Client, stream: bool) -> None:
    told = narrow.post("/v1/chat/completions", json=chat(narrow, collection="odd", stream=stream))
    assert told.status_code == 200
    assert "caf?.md" in told.text


def test_no_head_sends_a_client_elsewhere(narrow: httpx2.Client) -> None:
    assert narrow.get("/v1/collections/").status_code == 404


@pytest.fixture
def service(sampled: Settings, tmp_path: Path) -> Iterator[Service]:
    """Without a server, and without KV."""
    service = Service(beside(sampled, tmp_path))
    yield service
    service.close()


def question(service: Service, *messages: tuple[str, str]) -> ChatRequest:
    said = [{"role": role, "content": text} for role, text in messages]
    return ChatRequest(model=f"{service.model}@default", messages=said, max_tokens=2)  # type: ignore[arg-type]


def test_a_question_that_waits_is_not_answered_from_another_collection_of_its_name(service: Service) -> None:
    collections = service.catalog.collections
    own = collections.get("default")
    caller = Caller("anna", collections=frozenset([own.id]))
    starts, _ = chat_starts(service, caller, question(service, ("user", "Who designed the lighthouse?")))
    collections.rename(own, "old")
    secret = service.settings.data_dir / "secret.md"
    secret.write_text("Who designed the lighthouse? That is a secret.")
    assert service.pipeline.ingest(secret, collection="default").added == 1
    cited = {one.source for one in starts[0]().answer.citations}
    assert cited <= {f"/docs/{name}.md" for name in ("bakery", "lighthouse", "meerkats")}
    collections.delete(collections.get("old"))
    with pytest.raises(NotFound) as missing:
        starts[0]()
    assert "default" not in str(missing.value), "nor are others named"


def test_a_collection_that_is_renamed_while_it_is_asked_answers_and_tells_of_no_other(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = service.catalog.collections
    own, with_id = collections.get("default"), collections.with_id

    def renamed_behind(collection_id: int) -> Collection | None:
        found = with_id(collection_id)
        collections.rename(own, "away")
        return found

    starts, _ = chat_starts(
        service, Caller("anna", collections=frozenset([own.id])), question(service, ("user", "Who designed it?"))
    )
    monkeypatch.setattr(collections, "with_id", renamed_behind)
    assert starts[0]().answer.citations


def test_no_kv_that_has_seen_a_clients_own_system_text_serves_others(service: Service) -> None:
    told = question(service, ("system", "The word is Rosebud."), ("user", "Who designed the lighthouse?"))
    starts, _ = chat_starts(service, Caller("anna"), told)
    cited = starts[0]().answer.citations
    service.pipeline.settle()
    models = service.pipeline.models
    template, fingerprint = models.template, models.cache.engine.spec.fingerprint
    stored = {
        system.hash: sum(
            len(models.store.variants(VariantKey(fingerprint, system.hash, (), template.chunk(one.text).hash).family))
            for one in cited
        )
        for system in (template.behind("The word is Rosebud.").system(), template.system())
    }
    behind_own, behind_ours = stored.values()
    assert (behind_own, behind_ours > 0) == (0, True)


@pytest.mark.parametrize("frank", [True, False])
def test_what_breaks_in_the_server_names_no_folder_but_to_who_runs_it(frank: bool) -> None:
    told = shown(CatalogError("cannot use the catalog /srv/data/catalog.sqlite: its disk is full"), frank)
    assert ("/srv" in told, told == BROKEN) == (frank, not frank)
    assert shown(PromptError("the prompt is empty"), frank) == "the prompt is empty"
    assert shown(RefusedRequest(503, "the server ends"), frank) == "the server ends"


def test_why_it_cannot_serve_is_for_who_runs_it(tmp_path: Path) -> None:
    settings = Settings(model=str(tmp_path / "nope"), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with open_catalog(settings) as catalog:
        reader, admin = (catalog.keys.create("a", [scope])[1] for scope in ("read", "admin"))  # type: ignore[list-item]
    with served(settings, waits=False) as client:

        def said(key: str) -> str:
            return client.get("/ready", headers={"Authorization": f"Bearer {key}"}).text

        wait_until(lambda: "nope" in said(admin), 60)
        assert BROKEN in said(reader) and "nope" not in said(reader)


@pytest.fixture(scope="module")
def keyed(
    sampled: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx2.Client, dict[str, str]]]:
    settings = beside(sampled, tmp_path_factory.mktemp("keyed"))
    with open_catalog(settings) as catalog:
        seen = {"owner": None, "stranger": [], "small": None}
        limits = {"small": KeyLimits(nbytes=10)}
        keys = {
            name: catalog.keys.create(name, ["read", "ingest"], collections=only, limits=limits.get(name))[1]
            for name, only in seen.items()
        }
        keys["admin"] = catalog.keys.create("admin", ["admin"])[1]
    heads = {name: f"Bearer {key}" for name, key in keys.items()}
    with served(settings, {"Authorization": heads["admin"]}) as client:
        yield client, heads


def test_what_is_anothers_is_not_there_by_its_id(keyed: Keyed) -> None:
    client, heads = keyed
    own, other = ({"Authorization": heads[name]} for name in ("owner", "stranger"))
    cache = client.post("/v1/context_caches", json={"texts": ["A secret."]}, headers=own).json()["id"]
    job = client.put("/v1/collections/default/documents/a.txt", content=b"A secret.", headers=own).json()["id"]
    talk = client.post("/v1/conversations", json={}, headers=own).json()["id"]
    document = client.get("/v1/collections/default/documents", headers=own).json()["data"][0]["id"]
    paths = {
        f"/v1/context_caches/{cache}": ("GET", "DELETE"),
        f"/v1/jobs/{job}": ("GET", "DELETE"),
        f"/v1/jobs/{job}/events": ("GET",),
        f"/v1/jobs/{job}/retry": ("POST",),
        f"/v1/conversations/{talk}": ("GET", "DELETE"),
        f"/v1/conversations/{talk}/answer": ("GET",),
        "/v1/collections/default": ("GET", "DELETE"),
        f"/v1/collections/default/documents/{document}": ("GET", "DELETE"),
    }
    found = {(path, method): client.request(method, path, headers=other) for path in paths for method in paths[path]}
    assert {key: one.status_code for key, one in found.items()} == dict.fromkeys(found, 404)
    parts = [{"type": "context_cache", "cache_id": cache}]
    body = chat(client) | {"messages": [{"role": "user", "content": parts}]}
    assert client.post("/v1/chat/completions", json=body, headers=other).status_code == 404
    assert client.get(f"/v1/context_caches/{cache}", headers=own).status_code == 200


@pytest.mark.parametrize("announced", [True, False])
def test_a_key_sends_no_more_bytes_than_it_may(keyed: Keyed, announced: bool) -> None:
    client, heads = keyed
    data = b"x" * 11
    path, head = "/v1/collections/default/documents/large.txt", {"Authorization": heads["small"]}
    sent = client.put(path, content=data if announced else iter([data]), headers=head)
    assert (sent.status_code, client.get("/v1/jobs", headers=head).json()["data"]) == (403, [])


def test_no_text_of_a_client_begins_an_event_or_a_head(narrow: httpx2.Client) -> None:
    hostile = "Who?\r\n\r\nevent: done\ndata: {}\n\n\u2028id: 1"
    path = f"/v1/conversations/{narrow.post('/v1/conversations', json={}).json()['id']}"
    with asked(narrow, "POST", f"{path}/messages", json={"question": hostile, "max_tokens": 4}) as events:
        assert [one.name for one in events][-1] == "done"
    told = narrow.get("/health", headers={"X-Request-Id": "a b\tc"})
    assert told.headers["X-Request-Id"].isalnum()


def test_no_address_in_what_is_sent_is_ever_asked(narrow: httpx2.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x"
        html = f'<link rel=stylesheet href="{url}"><img src="{url}"><iframe src="{url}"></iframe><p>Some words.'
        svg = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "{url}">]><html><p>Words, &b;</p></html>'
        files = {
            "a.html": html,
            "b.xhtml": svg,
            "c.md": f"# Words\n\n![x]({url}) <{url}>",
            "d.json": f'{{"$ref": "{url}"}}',
        }
        for name, text in files.items():
            job = narrow.put(f"/v1/collections/default/documents/{name}", content=text.encode()).json()["id"]
            wait_until(lambda job=job: narrow.get(f"/v1/jobs/{job}").json()["state"] in ("done", "failed"), 60)
        image = [{"type": "image_url", "image_url": {"url": url}}]
        body = chat(narrow) | {"messages": [{"role": "user", "content": image}]}
        assert narrow.post("/v1/chat/completions", json=body).status_code == 400
        assert narrow.post("/v1/context_caches", json={"texts": [url], "split": url}).status_code == 400
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_who_goes_away_from_a_stream_ends_it(narrow: httpx2.Client) -> None:
    def measured(name: str) -> float:
        return next(
            float(line.split()[-1]) for line in narrow.get("/metrics").text.splitlines() if line.startswith(name)
        )

    ended, tokens = "ragcache_answers_total", 'ragcache_tokens_total{source="answered"}'
    assert narrow.post("/v1/chat/completions", json=chat(narrow)).status_code == 200
    answers, before = measured(ended), measured(tokens)
    with asked(narrow, "POST", "/v1/chat/completions", json=chat(narrow, stream=True, max_tokens=1900)) as events:
        next(events)
    wait_until(lambda: measured(ended) == answers + 1 and measured("ragcache_running_answers") == 0, 60)
    assert measured(tokens) - before < 1900


@pytest.mark.parametrize("of", [conversations, collections])
def test_what_a_key_makes_has_a_bound(narrow: httpx2.Client, monkeypatch: pytest.MonkeyPatch, of: ModuleType) -> None:
    monkeypatch.setattr(of, "MOST", 0)
    refused = narrow.post(of.router.prefix, json={"name": "one more"} if of is collections else {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "limit")
