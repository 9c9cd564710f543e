"""Whether it lives, and whether it can serve."""

from __future__ import annotations

import os
import subprocess
import sys
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
