"""The documentation says what the code does."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from dotenv import dotenv_values

from app.cli import cli
from app.settings import PREFIX, Settings, load_settings, variable
from ragcache.linking import LINKERS
from ragcache.store.codec import CODECS
from ragcache.store.eviction import ORDERS

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = [ROOT / "README.md", CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLE = (ROOT / ".env.example").read_text()


def commands(text: str) -> list[list[str]]:
    """The words after `ragcache`, of every line in a fenced block that runs it."""
    lines = [line for block in FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    found = [re.match(r"\s*(?:\$ )?(?:\S+=\S+ )*(?:\.venv/bin/)?ragcache\s+([^|>&;]+)", line) for line in lines]
    return [shlex.split(match[1], comments=True) for match in found if match]


def what_is_wrong(words: list[str]) -> str | None:
    """Walk down the groups, then compare the options with those of the command."""
    command = typer.main.get_command(cli)
    context = typer.Context(command)
    rest = list(words)
    while rest and hasattr(command, "get_command") and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"no command {rest[0]!r}"
        command = found
        rest.pop(0)
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = {word.partition("=")[0] for word in rest if word.startswith("--")} - options - {"--help"}
    return f"no option {sorted(unknown)}" if unknown else None


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_command_in_the_docs_exists(path: Path) -> None:
    wrong = {" ".join(words): told for words in commands(path.read_text()) if (told := what_is_wrong(words))}
    assert wrong == {}


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    text = "```console\n$ ragcache nope --json\n.venv/bin/ragcache doctor --nope # why\n```\nragcache outside\n"
    assert [what_is_wrong(words) for words in commands(text)] == ["no command 'nope'", "no option ['--nope']"]
    assert [what_is_wrong(words) for words in (["doctor", "--json"], ["--version"], ["bench", "--help"])] == [None] * 3


@pytest.mark.parametrize("command", ["make demo", "make test", "make check", "ragcache doctor"])
def test_the_readme_names(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_every_setting_is_in_the_example() -> None:
    lines = re.findall(rf"^(?:# )?({PREFIX}\w+)=", EXAMPLE, re.MULTILINE)
    assert sorted(lines) == sorted(variable(name) for name in Settings.model_fields)


def test_the_values_of_the_example_are_the_defaults() -> None:
    written = dotenv_values(ROOT / ".env.example")
    assert load_settings(ROOT / ".env.example") == load_settings(None)
    # Only what depends on the machine, or is nothing, has no value to show.
    left_out = {name for name in Settings.model_fields if variable(name) not in written}
    unset = {"fusion", "mmr", "reranker", "threads", "top_k", "vector_share"}
    unset |= {"temperature", "top_p", "sampling_top_k", "seed", "remote", "remote_bytes"}
    assert left_out == unset | {"cache_dir", "data_dir", "database_url", "api_key"}


def test_every_setting_of_the_example_has_a_comment() -> None:
    paragraphs = EXAMPLE.split("\n\n")
    lonely = [text for text in paragraphs if PREFIX in text and not re.match(r"# (?!RAGCACHE_)\S", text)]
    assert lonely == []


@pytest.mark.parametrize("name", [*LINKERS, *CODECS, *ORDERS])
def test_every_strategy_is_in_the_docs(name: str) -> None:
    assert any(f"`{name}`" in path.read_text() for path in (ROOT / "docs" / "design.md", ROOT / "README.md"))


def test_contributions_have_a_place() -> None:
    """What CONTRIBUTING.md points at is there, but for the files named NAME and what a run makes."""
    made = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    words = [word for word in re.findall(r"`([\w./]+)`", CONTRIBUTING.read_text()) if "/" in word]
    named = [word for word in words if Path(word).parts[0] not in made]
    assert len(named) > 20
    before = {word: takewhile(lambda part: "NAME" not in part, Path(word).parts) for word in named if "NAME" in word}
    assert [word for word, parts in before.items() if not ROOT.joinpath(*parts).is_dir()] == []
    assert [word for word in named if "NAME" not in word and not (ROOT / word).exists()] == []


def test_contributions_are_registered_where_it_says() -> None:
    """Each table row names a registry that stands in the file behind it."""
    found = re.findall(r"`(\w+)`(?: and `\w+`)? (?:in|of) `([\w./]+)`", CONTRIBUTING.read_text())
    assert len(found) >= 5
    assert [registry for registry, file in found if registry not in (ROOT / file).read_text()] == []
