"""Whether it lives, and whether it can serve."""

from __future__ import annotations

from pathlib import Path

import httpx2

from app import Settings
from app.server.service import Service
from tests.app.server.serving import STARTING_S
from tests.waiting import wait_until


def test_a_server_that_can_serve_says_so(client: httpx2.Client) -> None:
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}


def test_models_that_cannot_be_loaded_are_told(tmp_path: Path) -> None:
    service = Service(Settings(model=str(tmp_path / "nope"), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache"))
    assert service.lacks() == ["the models are being loaded"]
    service.start()
    wait_until(lambda: service.lacks() != ["the models are being loaded"], STARTING_S)
    assert "no model" in service.lacks()[0]
    service.close()
