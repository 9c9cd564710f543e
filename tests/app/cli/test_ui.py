"""`ragcache ui`: what it starts, whom it asks, and that nothing of it is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from app import Settings
from app.settings import environment
from tests.app.cli.conftest import flags
from tests.app.cli.inside import Run, make_run
from tests.app.server.serving import served
from tests.waiting import wait_until

PATIENCE_S = 120.0
MAIN = "from app.cli import main; main()"
PAGE, SERVER = re.compile(r"The chat is at (http://\S+) "), re.compile(r"(http://\S+)/v1 ")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, "--no-browser")


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command in a process of its own, when its page is there, and what it has said until then."""
    command = [sys.executable, "-c", MAIN, "ui", "--port", "0", "--no-browser", *arguments]
    outside = environment(serve_port="0") | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        command, cwd=folder, env=outside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if PAGE.search(line):
                break
        yield process, said
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.stdout.close()
        process.wait(PATIENCE_S)


def found(pattern: re.Pattern[str], said: list[str]) -> str:
    match = pattern.search("".join(said))
    assert match is not None, said
    return match[1]


def is_there(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(url, timeout=PATIENCE_S).status_code == 200
    return False


@pytest.mark.slow
def test_the_server_and_the_page_end_with_a_command_that_is_killed(sampled: Settings, tmp_path: Path) -> None:
    with started(tmp_path, *flags(sampled), "--engine", "torch") as (process, said):
        page, server = found(PAGE, said), found(SERVER, said)
        assert is_there(f"{page}/_stcore/health") and is_there(f"{server}/ready")
        process.kill()
        wait_until(lambda: not is_there(f"{page}/_stcore/health"), PATIENCE_S)
        wait_until(lambda: not is_there(f"{server}/health"), PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_page_and_not_a_server_of_somebody_else(
    sampled: Settings, tmp_path: Path, how: signal.Signals
) -> None:
    with (
        served(sampled) as client,
        started(tmp_path, "--server", str(client.base_url)) as (process, said),
    ):
        page = found(PAGE, said)
        assert SERVER.search("".join(said)) is None, "one was started beside it"
        process.send_signal(how)
        assert process.wait(PATIENCE_S) == 128 + how
        assert not is_there(f"{page}/_stcore/health")
        assert client.get("/ready").status_code == 200


def test_a_port_of_somebody_else_is_told_at_once(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ran = run("ui", "--port", str(port := listening.getsockname()[1]))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"error: cannot listen at 127.0.0.1 port {port}: Address already in use: choose another by --port, "
        "or 0 for one that is free\n"
    )


def test_without_streamlit_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamlit", None)
    monkeypatch.setattr("app.cli.ui.find_spec", lambda name: None if name == "streamlit" else object())
    ran = run("ui", "--port", "0")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == ("error: the page needs Streamlit, which is not installed: pip install 'ragcache-kv[ui]'\n")


def test_other_machines_see_no_page_without_keys(run: Run, sampled: Settings) -> None:
    own = run("ui", "--host", "0.0.0.0", "--port", "0", *flags(sampled))
    assert own.code == 1
    assert "there is no key" in own.err and "RAGCACHE_UI_HOST" in own.err
    with served(sampled) as client:
        named = run("ui", "--host", "0.0.0.0", "--port", "0", "--server", str(client.base_url))
    assert named.code == 1
    assert "asks nobody for a key" in named.err


@pytest.mark.slow
def test_the_reason_of_a_server_that_does_not_start_is_told(
    run: Run, sampled: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGCACHE_SERVE_PORT", "0")
    ran = run("ui", "--port", "0", *flags(sampled), "--model", "/nowhere", "--engine", "torch")
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith("error: the server ")
    assert "/nowhere" in ran.err.splitlines()[-1]


def test_a_child_has_the_settings_that_it_is_given_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ragcache_api_key", "rk-1")
    monkeypatch.setenv("RAGCACHE_DATABASE_URL", "postgresql://u:p@h/d")
    given = environment(server="http://127.0.0.1:1", api_key=None)
    assert {name: value for name, value in given.items() if name.upper().startswith("RAGCACHE_")} == {
        "RAGCACHE_SERVER": "http://127.0.0.1:1"
    }
    assert given["PATH"] == os.environ["PATH"]
