"""A short run of the campaign over the server's description, and that it would find what it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import Settings
from tests.fuzz.calls import Campaign, campaign
from tests.tiny_folder import write_tiny_folder

pytestmark = pytest.mark.slow
EACH = 8  # requests of an operation


@pytest.fixture(scope="module")
def running(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    folder = tmp_path_factory.mktemp("calls")
    model = write_tiny_folder(folder / "tiny", smollm2)
    with campaign(Settings(model=str(model), data_dir=folder / "data", cache_dir=folder / "cache")) as running:
        yield running


def test_every_request_has_an_answer_that_is_described(running: Campaign) -> None:
    operations = sum(map(len, running.description()["paths"].values()))
    calls = running.run(EACH * operations, 0)
    assert calls.finds == {}
    assert {200, 400, 401, 403, 404} <= set(calls.outcomes)
    assert calls.outcomes.total() > 0.9 * EACH * operations


def test_what_is_not_described_is_a_find(running: Campaign) -> None:
    description = running.description()
    paths, schemas = description["paths"], description["components"]["schemas"]
    description["paths"] = {path: paths[path] for path in ("/health", "/v1/models", "/v1/models/{name}")}
    schemas["ServerState"]["properties"]["status"]["type"] = "integer"
    del description["paths"]["/v1/models/{name}"]["get"]["responses"]["4XX"]
    found = running.run(30, 0, description).found
    assert found["GET /health: 200, Response violates schema"] == 10
    assert any(name.startswith("GET /v1/models/{name}: 4") for name in found), found
