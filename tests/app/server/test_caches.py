"""Explicit context caches over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from app.chat.contexts import ContextRequest
from app.library.catalog.serving_records import ContextCache
from app.server.callers import Caller
from app.server.openai.request_format import chat_starts
from app.server.openai.schemas import ChatRequest
from app.server.service import Service
from tests.app.server.serving import beside

PATH = "/v1/context_caches"
TEXTS = ["The tower was built in 1846, of granite.", "Three keepers lived there."]


def test_a_cache_is_made_listed_and_expired(client: httpx2.Client) -> None:
    made = client.post(PATH, json={"texts": TEXTS, "ttl": 60})
    assert made.status_code == 201, made.text
    told = made.json()
    assert (len(told["chunks"]), told["expires"] - told["created"], told["pinned"]) == (2, 60, False)
    assert client.get(f"{PATH}/{told['id']}").json() == told
    tokens = client.post(PATH, json={"tokens": [[5, 6, 7]], "pinned": True}).json()
    assert (tokens["chunks"], tokens["expires"], tokens["pinned"]) == ([3], None, True)
    listed = client.get(PATH).json()["data"]
    assert [one["id"] for one in listed][:2] == [tokens["id"], told["id"]]
    for one in (told, tokens):
        path = f"{PATH}/{one['id']}"
        assert client.delete(path).json() == {"id": one["id"], "object": "context_cache", "deleted": True}
        assert (client.get(path).status_code, client.delete(path).status_code) == (404, 404)
    assert client.get(PATH).json()["data"] == []


def test_a_request_looks_at_each_once(sampled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names it how often: a body of 8 MiB may in thousands of parts, for each of its choices."""
    service = Service(beside(sampled, tmp_path))
    looks, rows = list[str](), service.catalog.context_caches
    look = rows.get

    def counted(cache_id: str, owner: str | None) -> ContextCache:
        looks.append(cache_id)
        return look(cache_id, owner)

    try:
        made = service.contexts.create(ContextRequest(tokens=[[5]]), "anna", Caller("anna").border).id
        monkeypatch.setattr(rows, "get", counted)
        said = [{"type": "context_cache", "cache_id": made}] * 20 + [{"type": "text", "text": "Who?"}]
        body = ChatRequest(model=service.model, messages=[{"role": "user", "content": said}], max_tokens=1, n=3)
        starts, _ = chat_starts(service, Caller("anna"), body)
        assert [len(start().answer.report.chunks) for start in starts] == [20] * 3
        assert looks == [made]
    finally:
        service.close()


def test_a_text_is_split(client: httpx2.Client) -> None:
    made = client.post(PATH, json={"texts": ["\n\n".join(TEXTS * 40)], "split": "fixed"}).json()
    assert len(made["chunks"]) > 2
    client.delete(f"{PATH}/{made['id']}")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"texts": [], "tokens": []},
        {"texts": ["a"], "tokens": [[1]]},
        {"texts": [""]},
        {"texts": ["\ud800"]},
        {"texts": "a"},
        {"tokens": [[]]},
        {"tokens": [[-1]]},
        {"tokens": [[True]]},
        {"tokens": [["1"]]},
        {"tokens": [[1.0]]},
        {"tokens": [[10**6]]},
        {"tokens": [[2**70]]},
        {"texts": ["a"], "ttl": 0},
        {"texts": ["a"], "ttl": 1e300},
        {"texts": ["a"], "ttl": float("nan")},
        {"texts": ["a"], "owner": "somebody"},
        {"texts": ["a"], "border": "key-somebody"},
        {"texts": ["a"], "split": "nope"},
        {"texts": ["a"], "split": "fixed:nope=1"},
        {"texts": ["a"], "split": "os.path.join"},
        {"texts": ["a"], "split": "llama_index.core.node_parser.SentenceSplitter"},
        {"tokens": [[1]], "split": "fixed"},
    ],
)
def test_what_is_no_cache_is_refused(client: httpx2.Client, body: dict[str, Any]) -> None:
    refused = client.post(PATH, content=json.dumps(body).encode())
    assert refused.status_code == 400, refused.text
    assert client.get(PATH).json()["data"] == []


def test_one_of_another_owner_is_as_one_that_never_was(client: httpx2.Client, sampled: Settings) -> None:
    with RagPipeline(sampled) as pipeline:
        foreign = pipeline.contexts.create(ContextRequest(TEXTS), "somebody", "key-somebody").id
        gone = pipeline.generate_context_cache(["What has expired."])
        pipeline.expire_cache(gone)
        never = "cc-" + "0" * 32
        for method in ("GET", "DELETE"):
            told = [client.request(method, f"{PATH}/{one}") for one in (foreign, gone, never)]
            assert {one.status_code for one in told} == {404}
            assert len({one.text.replace(foreign, never).replace(gone, never) for one in told}) == 1
        assert client.get(PATH).json()["data"] == []
        assert pipeline.contexts.get(foreign, "somebody")
        pipeline.contexts.expire(foreign, "somebody")
