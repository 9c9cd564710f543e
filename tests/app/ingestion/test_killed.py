"""An ingest that is killed with SIGKILL, at fifty random moments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)
def test_fifty_kills_lose_double_and_half_show_nothing(tiny_folder: Path, tiny_embedder: Path, tmp_path: Path) -> None:
    outside = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",  # the script forks
        "TOKENIZERS_PARALLELISM": "false",
        "RAGCACHE_MODEL": str(tiny_folder),
        "RAGCACHE_EMBEDDER": str(tiny_embedder),
        "RAGCACHE_DTYPE": "float32",
        "RAGCACHE_DEVICE": "cpu",
        "RAGCACHE_CHUNK_TOKENS": "100",
    }
    script = Path(__file__).with_name("killing.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], cwd=tmp_path, env=outside, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-8000:]
    assert json.loads(ran.stdout)["survived"] < 25  # or it was mostly too late to do any harm
