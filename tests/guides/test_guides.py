"""What the guides tell can be done as it stands there, from the first one on, over SmolLM2.

First steps make the collection that the others ask. Their home is a folder of the test, so paths are as they show them.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from app.samples import read_samples
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.setup import STORE_KEYS
from tests.postgres import PASSWORD, Server
from tests.shown import ROOT, SKIPPED, Shell, blocks, run_blocks

pytestmark = pytest.mark.slow
FOLDER = ROOT / "docs" / "guides"
GUIDES = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
# Over one collection, by one server. What an operator does comes apart, in a home of its own.
ASKING = ("cli.md", "api.md", "llama-index.md", "sizing.md", "chat.md")
# The torch engine, where a server would choose vLLM; answers that are the same each time, and not long; KV that is
# linked however short the prompt.
SETTINGS = {"ENGINE": "torch", "TEMPERATURE": "0", "MAX_TOKENS": "24", "LINK_WHEN": "always"}
ENVIRONMENT = {f"RAGCACHE_{name}": value for name, value in SETTINGS.items()}
POSTGRES = "localhost:5432/ragcache"


def parts(name: str) -> dict[str, str]:
    """Sections of a guide, by title."""
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", GUIDES[name], re.MULTILINE | re.DOTALL))


def terminal(home: Path) -> Shell:
    return Shell(home, home / "ragcache", environment=ENVIRONMENT)


@pytest.fixture(scope="module")
def begun(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A terminal of somebody who has done the first steps: with one whole sample, and the beginnings of the others."""
    home = tmp_path_factory.mktemp("me")
    samples = home / "ragcache" / "app" / "samples"
    samples.mkdir(parents=True)
    for name, text in read_samples().items():
        (samples / name).write_text(text if name == "lighthouse.md" else text[:600], encoding="utf-8")
    (home / ".cache" / "ragcache").mkdir(parents=True)
    (home / ".cache" / "ragcache" / "models").symlink_to(smollm2.parent)
    shell = terminal(home)
    run_blocks("first-steps.md", blocks(GUIDES["first-steps.md"]), shell, {})
    shutil.copytree(home / ".local", home / "begun")  # as long as nobody has it open
    yield shell
    shell.end()


@pytest.fixture
def operator(begun: Shell, tmp_path: Path) -> Iterator[Shell]:
    """Of another home, with the documents of the first and over its KV."""
    shutil.copytree(begun.home / "begun", tmp_path / ".local")
    (tmp_path / ".cache").symlink_to(begun.home / ".cache")
    shell = terminal(tmp_path)
    yield shell
    shell.end()


def test_first_steps(begun: Shell) -> None:
    assert (begun.home / ".local" / "share" / "ragcache" / "catalog.sqlite").is_file()


@pytest.mark.parametrize("name", ASKING)
def test_what_asks(name: str, begun: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    begun.begin()
    monkeypatch.chdir(begun.folder)
    for variable, value in {"HOME": str(begun.home), **ENVIRONMENT}.items():
        monkeypatch.setenv(variable, value)
    run_blocks(name, blocks(GUIDES[name]), begun, {})


def test_what_an_operator_does(operator: Shell) -> None:
    for title, part in parts("operations.md").items():
        if title != "PostgreSQL":
            operator.begin()
            run_blocks(title, blocks(part), operator, {})


def test_a_catalog_in_postgresql(postgres_server: Server, tmp_path: Path) -> None:
    where = postgres_server.create("guided").partition("@")[2]
    shell = Shell(tmp_path, tmp_path, environment={**ENVIRONMENT, "PGPASSWORD": PASSWORD})
    part = parts("operations.md")["PostgreSQL"]
    assert POSTGRES in part
    run_blocks("PostgreSQL", blocks(part.replace(POSTGRES, where)), shell, {})


def test_every_guide_is_run_or_says_what_does() -> None:
    """Nobody adds one that no test reads, or leaves a block out without a word."""
    assert {*GUIDES} == {*ASKING, "README.md", "first-steps.md", "operations.md", "vllm.md"}
    left_out = {name: [one for one in blocks(text) if one.skipped] for name, text in GUIDES.items()}
    numbers = {name: len(found) for name, found in left_out.items() if found}
    assert numbers == {"first-steps.md": 2, "sizing.md": 1, "vllm.md": 4}
    assert [one for one in blocks(GUIDES["vllm.md"]) if not one.skipped] == []
    for one in (one for alike in left_out.values() for one in alike):
        found = SKIPPED.fullmatch(one.mark)
        assert found is not None
        assert found[1] == "not run" or (ROOT / found[2]).is_file(), one.mark


def test_links_lead_somewhere() -> None:
    for name, text in GUIDES.items():
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, title = target.partition("#")
            file = (FOLDER / path).resolve() if path else FOLDER / name
            assert file.exists(), f"{name}: {target}"
            if title:
                assert title in anchors(file.read_text()), f"{name}: {target}"


def anchors(text: str) -> set[str]:
    """Of headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_what_vllm_is_started_with_is_known_to_it() -> None:
    """The command itself takes a GPU or its time."""
    known = STORE_KEYS | {field.name for field in fields(LinkSettings)}
    for text in (GUIDES["vllm.md"], (ROOT / "docs" / "vllm.md").read_text()):
        (command,) = re.findall(r"vllm serve .*?\}\}'", text, re.DOTALL)
        told = json.loads(shlex.split(command)[-1])
        assert {*told["kv_connector_extra_config"]} <= known
        module, _, name = "ragcache.engine.vllm.connector.RagcacheConnector".rpartition(".")
        assert (told["kv_connector_module_path"], told["kv_connector"]) == (module, name)
