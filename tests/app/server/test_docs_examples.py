"""What docs/server.md shows can be done as it stands there, by curl and by the clients that it names, over SmolLM2.

Blocks run in the order of the document. JSON behind one is what it printed: its fields with values of their kinds, and
texts as they are but for those with an ellipsis.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from app import RagPipeline, Settings
from app.settings import variable
from tests.app.filling import LIGHTHOUSE
from tests.app.server.serving import served

pytestmark = pytest.mark.slow
TEXT = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(bash|python|json)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
RUN = ("Asking", "Documents as a model", "Documents", "Context caches", "Conversations", "Operations", "The cache")
PATIENCE_S = 300
# Ids that later blocks name: "the job" is the last one that was told.
NAMED = re.compile(r'"id":"([^"]+)","object":"(job|context_cache|conversation)"')
VARIABLES = {"job": "JOB", "context_cache": "CACHE", "conversation": "CONVERSATION"}


@dataclass
class Shell:
    """curl says nothing of its own, and ends what it prints with a line."""

    folder: Path
    address: str
    told: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / ".curlrc").write_text('silent\nshow-error\nwrite-out = "\\n"\n')

    def run(self, script: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, self.address)],
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", **self.variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        self.told = done.stdout
        self.variables |= {VARIABLES[kind]: name for name, kind in NAMED.findall(self.told)}
        if mark := re.search(r"^id: (\S+)$", self.told, re.MULTILINE):
            self.variables["EVENT"] = mark[1]


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
        yield Shell(settings.data_dir.parent, str(client.base_url))


@pytest.fixture(scope="module")
def names(shell: Shell) -> Iterator[dict[str, Any]]:
    """What blocks of Python have named. Later sections go on with the client of the first, each also alone."""
    with OpenAI(base_url=f"{shell.address}/v1", api_key="none") as client:
        yield {"client": client}


def test_all_sections_with_examples_run() -> None:
    assert [name for name, text in SECTIONS.items() if BLOCK.search(text)] == list(RUN)


@pytest.mark.parametrize("section", RUN)
def test_the_examples_run(
    section: str, shell: Shell, names: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model", "data_dir", "cache_dir"):
        monkeypatch.setenv(variable(name), str(getattr(settings, name)))
    blocks = BLOCK.findall(SECTIONS[section])
    for place, (language, block) in enumerate(blocks):
        shown = next((text for kind, text in blocks[place + 1 : place + 2] if kind == "json"), None)
        if language == "python":
            exec(compile(block.replace(ADDRESS, shell.address), f"{section}, block {place}", "exec"), names)
        elif language == "bash":
            shell.run(block)
            if shown is not None:
                check_shown(json.loads(shown), json.loads(shell.told.splitlines()[-1]))
            else:
                assert '"error":{' not in shell.told and "event: error" not in shell.told, shell.told


def check_shown(shown: Any, told: Any) -> None:
    """Fields may be left out of what is shown, and none may be in it that is not told."""
    if isinstance(shown, dict):
        assert isinstance(told, dict)
        assert set(shown) <= set(told), f"{sorted(shown)} are shown, and told are {sorted(told)}"
        for name, value in shown.items():
            check_shown(value, told[name])
    elif isinstance(shown, list):
        assert isinstance(told, list)
        for one in shown:
            check_shown(one, told[0])
    elif isinstance(shown, str) and "…" not in shown:
        assert told == shown
    elif shown is not None:
        assert isinstance(told, type(shown))


@pytest.mark.parametrize(
    ("shown", "told"), [({"a": 1}, {}), ({"a": "x"}, {"a": "y"}), ({"a": 1}, {"a": "1"}), ([{"a": 1}], [{"b": 1}])]
)
def test_what_is_shown_wrongly_would_be_seen(shown: Any, told: Any) -> None:
    with pytest.raises(AssertionError):
        check_shown(shown, told)
