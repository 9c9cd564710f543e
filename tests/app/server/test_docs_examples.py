"""What docs/server.md shows can be done as it stands there, by curl and by the clients that it names, over SmolLM2.

Its consoles are of an operator, who is not here: docs/guides has those that run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from app import RagPipeline, Settings
from app.settings import variable
from tests.app.filling import LIGHTHOUSE
from tests.app.server.serving import served
from tests.shown import Block, Shell, blocks, run_blocks

pytestmark = pytest.mark.slow
TEXT = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
RUN = ("Asking", "Documents as a model", "Documents", "Context caches", "Conversations", "Operations", "The cache")


def bash_and_python(section: str) -> list[Block]:
    return [one for one in blocks(section) if one.language != "console"]


@pytest.fixture(scope="module")
def settings(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("shown")
    (folder / "smollm2").symlink_to(smollm2)
    (folder / "handbook").mkdir()
    (folder / "handbook" / "lighthouse.md").write_text(LIGHTHOUSE, encoding="utf-8")
    settings = Settings(
        model=str(folder / "smollm2"), data_dir=folder / "data", cache_dir=folder / "cache", max_tokens=24
    )
    with RagPipeline(settings.model_copy(update={"collection": "handbook"})) as pipeline:
        pipeline.ingest([folder / "handbook"])
    return settings


@pytest.fixture(scope="module")
def shell(settings: Settings) -> Iterator[Shell]:
    with served(settings) as client:
        folder = settings.data_dir.parent
        yield Shell(folder, folder, str(client.base_url))


@pytest.fixture(scope="module")
def names(shell: Shell) -> Iterator[dict[str, Any]]:
    """What blocks of Python have named. Later sections go on with the client of the first, each also alone."""
    with OpenAI(base_url=f"{shell.address}/v1", api_key="none") as client:
        yield {"client": client}


def test_all_sections_with_examples_run() -> None:
    assert [name for name, text in SECTIONS.items() if bash_and_python(text)] == list(RUN)


@pytest.mark.parametrize("section", RUN)
def test_the_examples_run(
    section: str, shell: Shell, names: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model", "data_dir", "cache_dir"):
        monkeypatch.setenv(variable(name), str(getattr(settings, name)))
    run_blocks(section, bash_and_python(SECTIONS[section]), shell, names)
