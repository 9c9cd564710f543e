"""What commands import, which is most of the time that they take to start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from tests.app.filling import fill

pytestmark = pytest.mark.slow

HEAVY = {"torch", "transformers", "sentence_transformers", "alembic", "llama_index.core", "nltk", "psycopg", "scipy"}
HEAVY |= {"sklearn", "pandas", "jinja2", "faiss"}
RUN = """
import json, sys
sys.argv = ["ragcache", *{arguments!r}]
from app.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
FIRST_WORD = """
import json, sys
from pathlib import Path
from app import RagPipeline, Settings
with RagPipeline(Settings(data_dir=Path({data!r}), cache_dir=Path({cache!r}), max_tokens=4)) as rag:
    with rag.stream("When was the lamp of the lighthouse lit?") as stream:
        next(iter(stream))
        print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules(code: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250)
    found: list[str] = json.loads(ran.stderr.strip().splitlines()[-1])
    return set(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    """A collection by the bundled models, which were loaded before."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "cache" / "models").mkdir(parents=True)
    (folder / "cache" / "models" / smollm2.name).symlink_to(smollm2)
    settings = Settings(data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=2)
    with RagPipeline(settings) as rag:
        fill(rag, ("lighthouse.md",))
        rag.ask("When was the lamp lit?", quotes=False)
    return folder


@pytest.mark.parametrize("command", ["ls", "ls -c default", "show 1", "--help", "bench --help", "cache stats"])
def test_looking_imports_no_model_library(folder: Path, command: str) -> None:
    settings = ["--data-dir", str(folder / "data"), "--cache-dir", str(folder / "cache")]
    arguments = [*command.split(), *([] if command.endswith("--help") else settings)]
    if command == "cache stats":
        modules(RUN.format(arguments=arguments))  # remembers the model's fingerprint
    found = modules(RUN.format(arguments=arguments))
    assert found & HEAVY == set()
    assert command in ("cache stats", "bench --help") or not found & {"numpy", "tokenizers"}


def test_the_first_word_needs_torch_and_little_else(folder: Path) -> None:
    found = modules(FIRST_WORD.format(data=str(folder / "data"), cache=str(folder / "cache")))
    assert found & HEAVY == {"torch", "faiss"}


def test_the_doctor_needs_nothing_that_it_looks_for() -> None:
    """Or it could not tell what is missing."""
    found = modules("import json, sys, app.cli.doctor; print(json.dumps(sorted(sys.modules)), file=sys.stderr)")
    assert found & (HEAVY | {"sqlalchemy", "numpy", "tokenizers"}) == set()
