"""A cache folder shared by processes that may die at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("processes.py")
ELSEWHERE = {"remade": "making_processes.py", "resized": "resizing_processes.py"}
LEAST = {"crash": 60, "resized": 30, "takeover": 15, "remade": 30}  # kills, before the writer got to its end


@pytest.mark.parametrize(
    "scene", ["crash", "resized", "takeover", "kill", "rebuilt", "stress", "count", "family", "remade"]
)
@pytest.mark.slow
def test_the_folder_stays_sound(tmp_path: Path, scene: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.fspath(SCRIPT.parents[3])}
    script = SCRIPT.with_name(ELSEWHERE.get(scene, SCRIPT.name))
    command = [sys.executable, os.fspath(script), scene, os.fspath(tmp_path / "store")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    if scene in LEAST:
        assert int(done.stdout.split()[2]) > LEAST[scene]
