"""A cache folder shared by processes that may die at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("processes.py")


@pytest.mark.parametrize("scene", ["crash", "takeover", "kill", "rebuilt", "stress", "count", "family"])
@pytest.mark.slow
def test_the_folder_stays_sound(tmp_path: Path, scene: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.fspath(SCRIPT.parents[3])}
    command = [sys.executable, os.fspath(SCRIPT), scene, os.fspath(tmp_path / "store")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    if scene in ("crash", "takeover"):  # the writer was killed often, and got to its end at last
        assert int(done.stdout.split()[2]) > {"crash": 60, "takeover": 15}[scene]
