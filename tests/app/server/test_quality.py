"""What the quality gate has measured, for those who may see the collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app import RagPipeline, Settings
from tests.app.filling import fill
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def client(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Each answer is measured."""
    folder = tmp_path_factory.mktemp("gated")
    model = write_tiny_folder(folder / "model", smollm2, spread=0.1)
    settings = Settings(
        model=str(model), data_dir=folder / "data", cache_dir=folder, max_tokens=4, link_when="always", gate=1.0
    )
    with RagPipeline(settings) as pipeline:
        for name in ("shore", "other"):
            fill(pipeline, ("lighthouse.md", "bakery.md"), name)
    with served(settings) as client:
        yield client


def ask(client: httpx2.Client, collection: str) -> None:
    body = {"model": f"{client.get('/v1/models').json()['data'][0]['id'].partition('@')[0]}@{collection}"}
    body |= {"messages": [{"role": "user", "content": "Who designed the lighthouse?"}]}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def state(client: httpx2.Client, **headers: str) -> dict[str, dict[str, object]]:
    return {one["collection"]: one for one in client.get("/v1/cache", headers=headers).json()["quality"]}


def test_measured_answers_are_told(client: httpx2.Client) -> None:
    for _ in range(3):
        ask(client, "shore")
    wait_until(lambda: state(client).get("shore", {}).get("measured") == 3, 60)
    (told,) = state(client).values()
    assert told["linked"] == "asked" and told["told"] == ""
    assert isinstance(told["kl"], float) and 0 < told["kl"] < 0.15
    assert 0 < client.get("/v1/cache").json()["model_kl"] < 0.15
    metrics = client.get("/metrics").text
    for line in ("ragcache_gate_measured_total{", "ragcache_gate_kl{", "ragcache_gate_level{", "ragcache_model_kl "):
        assert line in metrics
    assert float(metrics.partition("\nragcache_gate_seconds_total ")[2].split()[0]) > 0


def test_a_collection_that_is_deleted_is_told_of_no_more(client: httpx2.Client) -> None:
    ask(client, "other")
    wait_until(lambda: "other" in state(client), 60)
    client.delete("/v1/collections/other").raise_for_status()
    assert "other" not in state(client)
    assert 'ragcache_gate_level{collection="2"}' not in client.get("/metrics").text
