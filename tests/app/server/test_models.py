"""What can be asked: the model, and each collection."""

from __future__ import annotations

import httpx2

from app import Settings
from app.server.service import model_name


def test_collections_are_models(client: httpx2.Client, sampled: Settings) -> None:
    own = model_name(sampled.model)
    listed = [card["id"] for card in client.get("/v1/models").json()["data"]]
    assert listed == [own, "minilm", f"{own}@default"]
    for name in listed:
        assert client.get(f"/v1/models/{name}").json()["id"] == name


def test_what_is_not_there_is_told_as_openai_does(client: httpx2.Client) -> None:
    found = client.get("/v1/models/../../etc/passwd")
    assert found.status_code == 404
    found = client.get("/v1/models/smollm2@nope")
    assert found.status_code == 404
    assert found.json()["error"]["type"] == "not_found_error"
