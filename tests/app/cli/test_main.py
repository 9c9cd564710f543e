"""The command line from outside: each test is a process of its own, as for a user."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli import Commands, cli

MAIN = "from app.cli import main; main()"
ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent  # not the root, where somebody may keep a .env


def ragcache(*arguments: str, folder: Path = ROOT, before: str = "") -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAGCACHE_")}
    outside |= {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", before + MAIN, *arguments]
    return subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, timeout=200)


def test_version() -> None:
    assert ragcache("--version").stdout == f"ragcache {version('ragcache-kv')}\n"


def test_help_names_the_commands() -> None:
    told = ragcache("--help")
    assert told.returncode == 0
    assert all(f"\n  {command} " in told.stdout for command in ("doctor", "demo", "bench"))


@pytest.mark.parametrize("arguments", [["doctor", "--nope"], ["nope"], ["bench", "nope"], []])
def test_a_wrong_command_line_is_2(arguments: list[str]) -> None:
    ran = ragcache(*arguments)
    assert ran.returncode == 2
    assert "Usage: ragcache" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", ["doctor", "demo"])
def test_an_error_for_users_is_one_line_and_1(command: str, tmp_path: Path) -> None:
    ran = ragcache(command, "--dtype", "half", folder=tmp_path)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: RAGCACHE_DTYPE='half' given as a flag ")
    assert ran.stderr.count("\n") == 1


def test_the_env_file_of_the_working_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RAGCACHE_DEVISE=cpu\n")
    ran = ragcache("doctor", folder=tmp_path)
    assert ran.stderr == "error: unknown setting RAGCACHE_DEVISE in .env: did you mean RAGCACHE_DEVICE?\n"


def test_interruption_is_130() -> None:
    interrupt = "import signal, app.cli.doctor as d; d.examine = lambda *_: signal.raise_signal(signal.SIGINT); "
    ran = ragcache("doctor", before=interrupt)
    assert ran.returncode == 128 + signal.SIGINT
    assert "Traceback" not in ran.stderr


LOADED = "import atexit, sys; atexit.register(lambda: print({heavy} & set(sys.modules))); "


@pytest.mark.parametrize("arguments", ["--help", "", "nope"])
def test_the_commands_are_listed_without_importing_any(arguments: str) -> None:
    heavy = {"app.settings", "app.cli.flags", "numpy", "pydantic_settings", "sqlalchemy", "torch"}
    assert ragcache(*arguments.split(), before=LOADED.format(heavy=heavy)).stdout.endswith("set()\n")


@pytest.mark.parametrize("command", ["doctor", "demo", "ask", "ls", "cache warm"])
def test_help_does_not_wait_for_model_libraries(command: str) -> None:
    heavy = {"torch", "transformers", "sentence_transformers", "faiss"}
    assert ragcache(*command.split(), "--help", before=LOADED.format(heavy=heavy)).stdout.endswith("\nset()\n")


def test_a_wrong_target_is_refused_without_waiting_for_model_libraries() -> None:
    heavy = {"torch", "transformers", "sentence_transformers", "faiss"}
    ran = ragcache("tune", "--target", "nonsense", before=LOADED.format(heavy=heavy))
    assert (ran.returncode, ran.stdout) == (2, "set()\n")
    assert "'nonsense' is no target" in " ".join(ran.stderr.split())


def test_each_command_of_the_table_is_there_and_says_what_the_table_says() -> None:
    group: Any = typer.main.get_command(cli)
    assert isinstance(group, Commands)
    assert len(group.table) == 16
    for name, told in group.table.items():
        command = group.get_command(typer.Context(group), name)
        first = re.split("[;,.:]", told)[0]
        assert " ".join(command.help.split()).startswith(first), (told, command.help)
        assert len(told) < 70, "a line"
        assert not any("--install-completion" in parameter.opts for parameter in command.params)


def test_an_error_while_a_command_is_imported_is_no_missing_command(monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = typer.main.get_command(cli)
    monkeypatch.setitem(sys.modules, "app.cli.ls", None)
    with pytest.raises(ImportError):
        group.get_command(typer.Context(group), "ls")
    monkeypatch.setattr("app.cli.import_module", {}.__getitem__)
    with pytest.raises(KeyError):
        group.get_command(typer.Context(group), "ls")


@pytest.mark.slow
def test_doctor_tells_each_finding_and_fails_on_any(tmp_path: Path) -> None:
    ran = ragcache("doctor", "--model", "/nowhere", "--cache-dir", str(tmp_path))
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    assert all(line[:2] in ("✓ ", "✗ ") for line in lines)
    assert "✓ python: " in ran.stdout
    assert any(line.startswith("✗ model: no model '/nowhere'") for line in lines)


@pytest.mark.slow
def test_doctor_tells_a_linker_that_nobody_knows(tmp_path: Path) -> None:
    setting = "import os; os.environ['RAGCACHE_LINKER'] = 'nope'; "
    ran = ragcache("doctor", "--model", "/nowhere", "--cache-dir", str(tmp_path), before=setting)
    assert ran.returncode == 1
    assert "\n✗ linker: unknown linker 'nope': choose from auto, " in ran.stdout


@pytest.mark.slow
def test_doctor_as_json(tmp_path: Path) -> None:
    ran = ragcache("doctor", "--json", "--model", "/nowhere", "--cache-dir", str(tmp_path))
    assert ran.returncode == 1
    findings = json.loads(ran.stdout)
    assert {"name": "cache folder", "ok": True, "detail": f"{tmp_path} is writable"} in findings


@pytest.mark.slow
def test_doctor_is_content_with_this_installation(smollm2: Path) -> None:
    ran = ragcache("doctor", "--cache-dir", str(smollm2.parent.parent))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "✓ engine: " in ran.stdout
    assert "✗" not in ran.stdout
