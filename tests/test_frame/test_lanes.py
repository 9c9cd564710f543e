"""Which tests run when: `make test` and CI run all, `make test-fast` what no lane has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from tests.test_frame.sources import ROOT, TESTS, named, parsed

OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
LANES = {line.partition(":")[0] for line in OPTIONS["markers"]}
MAY_SKIP = {"tests/conftest.py", "tests/app/library/catalog/test_restored_rights.py"}


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, target
    return found[1]


def test_everything_runs_in_ci() -> None:
    """No marks are chosen, and what default patterns do not collect is named. What one target has run, the next does
    not run again.
    """
    runs = [line for line in recipe("test").splitlines() if "pytest" in line]
    assert len(runs) == 2
    assert not any(re.search(r"-m (?!pytest)|-k |--ignore|--deselect", line) for line in runs)
    assert "vllm_*.py" in runs[1]
    assert recipe("check").splitlines()[-1].endswith("pytest -q tests/test_frame")
    ci = (ROOT / ".ci" / "run").read_text().splitlines()[-2:]
    assert ci == ["make check", 'PYTEST_ADDOPTS="--ignore=tests/test_frame" make test']
    assert {"-ra", "--strict-markers", "--strict-config"} <= set(OPTIONS["addopts"])


def test_the_fast_lane_leaves_out_every_other() -> None:
    found = re.search(r'-m "not \((.+)\)"', recipe("test-fast"))
    assert found is not None
    assert set(found[1].split(" or ")) == LANES == {"vllm", "postgres", "slow"}


def collected(*arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-W", "default"]
    patterns = ["-o", "python_files=test_*.py vllm_*.py"]
    ran = subprocess.run([*command, *patterns, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ran.returncode in (0, 5), ran.stdout + ran.stderr  # 5: every one is left out
    return {line for line in ran.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_a_lane_has_what_belongs_to_it() -> None:
    folders = ("tests/migrations", "tests/equivalence/vllm/vllm_checks.py")
    inside, outside = (collected(*folders, "-m", lanes) for lanes in ("vllm or postgres", "not (vllm or postgres)"))
    assert inside
    assert outside
    assert [test for test in inside if "[postgresql" not in test and "/vllm_" not in test] == []
    assert [test for test in outside if "[postgresql" in test or "/vllm_" in test] == []


def test_who_asks_for_postgres_by_a_parameter_marks_it() -> None:
    """The fixture's name says so for all others (tests/conftest.py)."""
    asking = [path for path in TESTS if re.search(r"getfixturevalue\(\"postgres_", path.read_text())]
    assert len(asking) == 3
    assert [named(path) for path in asking if "marks=pytest.mark.postgres" not in path.read_text()] == []


def skips(tree: ast.Module) -> bool:
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(
        used & {f"pytest.{name}" for name in ("skip", "importorskip", "mark.skip", "mark.skipif", "mark.xfail")}
    )


def test_nothing_else_skips() -> None:
    """Each skip is told at the end of a run (-ra)."""
    assert {named(path) for path in TESTS if skips(parsed(path))} == MAY_SKIP


def spinning(tree: ast.Module) -> list[int]:
    """Lines of loops that look at a clock and do not wait."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            called = {ast.unparse(one.func).rpartition(".")[2] for one in ast.walk(node) if isinstance(one, ast.Call)}
            if called & {"monotonic", "perf_counter", "time"} and not called & {"wait", "sleep", "poll", "wait_until"}:
                found.append(node.lineno)
    return found


def test_no_test_spins_while_it_waits() -> None:
    assert {named(path): lines for path in TESTS if (lines := spinning(parsed(path)))} == {}


@pytest.mark.parametrize(("code", "found"), [("f()", [1]), ("sleep(0.1)", []), ("gate.wait(1)", [])])
def test_a_loop_that_spins_would_be_seen(code: str, found: list[int]) -> None:
    assert spinning(ast.parse(f"while monotonic() < end:\n    {code}")) == found
    assert spinning(ast.parse(f"while work:\n    {code}")) == []


@pytest.mark.parametrize("code", ["pytest.skip('why')", "@pytest.mark.skipif(x)\ndef f(): pass"])
def test_a_skip_would_be_seen(code: str) -> None:
    assert skips(ast.parse(code))


def test_slow_marks_are_marks() -> None:
    """A name that pytest does not know is an error, but only in files that are collected."""
    used = {mark for path in TESTS for mark in re.findall(r"pytest\.mark\.(\w+)", path.read_text())}
    assert used - LANES <= {"parametrize", "filterwarnings", "usefixtures", "timeout", "skipif"}


def test_the_fast_lane_is_documented() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert "make test-fast" in path.read_text()
