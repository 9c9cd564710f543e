"""What the quality gate has measured, for those who may see the collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from tests.app.filling import fill
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def gated(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Each answer is measured."""
    folder = tmp_path_factory.mktemp("gated")
    model = write_tiny_folder(folder / "model", smollm2, spread=0.1)
    return Settings(
        model=str(model), data_dir=folder / "data", cache_dir=folder, max_tokens=4, link_when="always", gate=1.0
    )


@pytest.fixture(scope="module")
def client(gated: Settings) -> Iterator[httpx2.Client]:
    with RagPipeline(gated) as pipeline:
        for name in ("shore", "other"):
            fill(pipeline, ("lighthouse.md", "bakery.md"), name)
    with served(gated) as client:
        yield client


def ask(client: httpx2.Client, collection: str, question: str = "Who designed the lighthouse?", *before: str) -> None:
    body = {"model": f"{client.get('/v1/models').json()['data'][0]['id'].partition('@')[0]}@{collection}"}
    own = [{"role": "system", "content": text} for text in before]
    body |= {"messages": [*own, {"role": "user", "content": question}]}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def state(client: httpx2.Client, **headers: str) -> dict[str, dict[str, Any]]:
    return {one["collection"]: one for one in client.get("/v1/cache", headers=headers).json()["quality"]}


def test_measured_answers_are_told(client: httpx2.Client) -> None:
    for number in range(3):
        ask(client, "shore", f"Who designed the lighthouse number {number}?")
        await_measured(client, number + 1)
    (told,) = state(client).values()
    assert told["linked"] == "asked" and told["told"] == ""
    assert isinstance(told["kl"], float) and 0 < told["kl"] < 0.15
    assert 0 < client.get("/v1/cache").json()["model_kl"] < 0.15
    metrics = client.get("/metrics").text
    for line in ("ragcache_gate_measured_total{", "ragcache_gate_kl{", "ragcache_gate_level{", "ragcache_model_kl "):
        assert line in metrics
    assert 'ragcache_tier_order{order="value",tier="disk"} 1.0' in metrics
    assert float(metrics.partition("\nragcache_gate_seconds_total ")[2].split()[0]) > 0


def test_a_clients_own_system_message_is_not_measured(client: httpx2.Client) -> None:
    """Its KV would be kept for it, and it tells nothing of others' prompts."""
    before = state(client).get("shore", {}).get("measured", 0)
    ask(client, "shore", "Who lives by the sea?")
    await_measured(client, before + 1)
    for number in range(5):
        ask(client, "shore", f"Who baked the bread number {number}?", "Speak as a sailor would.")
    ask(client, "shore", "Who keeps the light?")
    await_measured(client, before + 2)


def await_measured(client: httpx2.Client, answers: int) -> None:
    wait_until(lambda: state(client).get("shore", {}).get("measured") == answers, 60)


def test_a_collection_that_is_deleted_is_told_of_no_more(client: httpx2.Client) -> None:
    ask(client, "other")
    wait_until(lambda: "other" in state(client), 60)
    client.delete("/v1/collections/other").raise_for_status()
    assert "other" not in state(client)
    assert 'ragcache_gate_level{collection="2"}' not in client.get("/metrics").text
