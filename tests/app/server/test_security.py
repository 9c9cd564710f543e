"""What one client can do to the server and to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from tests.app.server.event_streams import asked
from tests.app.server.serving import beside, served
from tests.waiting import wait_until

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
