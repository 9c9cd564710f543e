"""Whether it lives, and whether it can serve."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx2
import pytest

from app import Settings
from app.answering.answerer import Answering
from app.library.catalog import open_catalog
from app.server.limits import OpenRequests
from app.server.service import Service, model_name
from app.server.web import BESIDE
from tests.app.server.serving import STARTING_S, beside, serving
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


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_who_waits_for_the_models_holds_up_nobody_else(
    sampled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    loading, over, asks = Event(), Answering.over, sampled.serve_concurrent + BESIDE
    monkeypatch.setattr(Answering, "over", lambda *parts: (loading.wait(STARTING_S), over(*parts))[1])
    settings, one, asking = beside(sampled, tmp_path), OpenRequests.one, list[str]()
    monkeypatch.setattr(OpenRequests, "one", lambda opened, key: (asking.append(key), one(opened, key))[1])
    with open_catalog(settings) as catalog:
        (many, first), (_, second) = (catalog.keys.create(name, ["read"]) for name in ("many", "other"))
    heads = [{"Authorization": f"Bearer {token}"} for token in (first, second)]
    text = {"messages": [{"role": "user", "content": "Hello"}]} if path == "chat/completions" else {"prompt": "Hello"}
    body = {"model": model_name(settings.model), "max_tokens": 1, **text}
    with serving(Service(settings), heads[0], waits=False) as client, ThreadPoolExecutor(asks) as threads:
        assert client.get("/v1/models").status_code == 200, "its key is known from now on"
        waiting = [threads.submit(client.post, f"/v1/{path}", json=body) for _ in range(asks)]
        try:
            wait_until(lambda: asking.count(many.id) == 1 + asks, STARTING_S)
            assert client.get("/v1/models", headers=heads[1]).status_code == 200, "whose key is looked at on a thread"
            assert not any(one.done() for one in waiting)
        finally:
            loading.set()
        assert [one.result().status_code for one in waiting] == [200] * asks


ENDED_AT_ONCE = """
from app.server.service import Service
from app.settings import Settings

service = Service(Settings())
service.start()
service.close()
assert service._loaded.is_set()
"""


def test_a_server_that_ends_while_it_loads_its_models_is_not_aborted(smollm2: Path, tmp_path: Path) -> None:
    """By a thread that Python ends amid a matrix, "terminate called without an active exception"."""
    places = {"DATA_DIR": tmp_path / "data", "CACHE_DIR": tmp_path / "cache", "MODEL": smollm2, "ENGINE": "torch"}
    told = os.environ | {f"RAGCACHE_{name}": str(value) for name, value in places.items()}
    ended = subprocess.run([sys.executable, "-c", ENDED_AT_ONCE], env=told, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
