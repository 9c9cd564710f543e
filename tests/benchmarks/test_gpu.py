"""What `make gpu` runs, on the CPU and small; with nothing but torch and a few libraries it runs too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_frame.sources import ROOT

pytestmark = pytest.mark.slow
SMALL = ["--device", "cpu", "--shapes", "tiny", "--rounds", "1", "--vectors", "2000"]
# Nothing of the application, and no transformers.
BARE = """
import sys
for name in {lacking!r}:
    sys.modules[name] = None
sys.argv = ["gpu", *{arguments!r}]
from benchmarks.gpu.__main__ import main
sys.exit(main())
"""
APPLICATION = ("pydantic", "typer", "sqlalchemy", "llama_index", "tokenizers", "sentence_transformers", "vllm")


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)


def bare(lacking: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, "-c", BARE.format(lacking=lacking, arguments=arguments))


def test_every_part_leaves_its_rows(tmp_path: Path) -> None:
    done = ran(sys.executable, "-m", "benchmarks.gpu", *SMALL, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    written = {path.stem: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(written) == {"exactness", "capture-tiny", "first_token-tiny", "loading-tiny", "index"}
    for document in written.values():
        assert set(document) == {"command", "versions", "settings", "rows"}
        assert document["command"].startswith("python -m benchmarks.gpu --device cpu")
        assert {"chip", "cuda", "date", "device", "seed"} <= set(document["settings"])
        assert document["rows"]
    exact = written["exactness"]["rows"]
    assert {row["model"] for row in exact} == {"any", "Llama", "Qwen2", "Qwen3", "Mistral"}
    assert [row for row in exact if row["exact"] != "yes"] == []
    assert {row["case"] for row in written["first_token-tiny"]["rows"]} == {"stock", "floor", "served", "ram", "disk"}
    assert [row["place"] for row in written["index"]["rows"]] == ["memory", "gpu"] * 2
    assert all(row["recall_at_10"] > 0.9 for row in written["index"]["rows"])
    assert "index: done" in done.stdout


@pytest.mark.parametrize("part", ["exactness", "tiny", "index"])
def test_a_part_needs_nothing_of_the_application(part: str, tmp_path: Path) -> None:
    lacking = (*APPLICATION, "transformers")
    done = bare(lacking, *SMALL, "--folder", str(tmp_path), "--part", part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir())


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    done = bare(("faiss",), *SMALL, "--folder", str(tmp_path), "--part", "index")
    assert done.returncode == 3
    assert "index is left out: FAISS is not installed" in done.stderr
    wrong = bare((), "--shapes", "7b")
    assert (wrong.returncode, wrong.stderr) == (2, "error: unknown shape '7b': choose from tiny, 1b, 8b\n")


def test_without_cuda_it_says_how_to_run_it() -> None:
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        command, cwd=ROOT, env=outside | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 2
    assert "sees no CUDA device here" in done.stderr
    assert "make gpu DEVICE=cpu SHAPES=tiny" in done.stderr


def test_the_figures_go_where_make_is_told() -> None:
    told = ran("make", "-n", "gpu", "FOLDER=elsewhere").stdout
    assert "-m benchmarks.gpu --device cuda --shapes 1b,8b --engines torch --folder elsewhere" in told
