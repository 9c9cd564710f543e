"""`--server`: what this machine would do itself is done by a server that runs, and shown in the same way."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app import RagPipeline, Settings
from app.answering.stream import CUT_OFF
from app.library.catalog import open_catalog
from tests.app.cli.conftest import FIRST, SECOND, conversation_of, flags
from tests.app.cli.inside import Ran, Run, make_run
from tests.app.cli.test_ask import LINE, QUESTION
from tests.app.cli.test_main import HERE, LOADED, MAIN, ROOT
from tests.app.client.test_connection import CARD, events, http, saying
from tests.app.server.serving import beside, served
from tests.waiting import wait_until

PATIENCE_S = 60.0
# What takes long to import; the client has no use for it. Typer itself imports pydantic.
HEAVY = {"torch", "numpy", "pydantic_settings", "sqlalchemy", "faiss", "httpx2", "transformers"}
HEAVY |= {"app.settings", "app.answering", "app.library", "app.server"}


@pytest.fixture(scope="module")
def client(sampled: Settings) -> Iterator[httpx2.Client]:
    with served(sampled) as client:
        yield client


@pytest.fixture
def url(client: httpx2.Client) -> str:
    return str(client.base_url).rstrip("/")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch)


def outside(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAGCACHE_")}
    return own | {"PYTHONPATH": str(ROOT)} | more


def test_an_answer_is_shown_as_that_of_this_machine(run: Run, url: str, sampled: Settings) -> None:
    asked = ("ask", QUESTION, "--top-k", "3", "--max-tokens", "6", "--greedy")
    own = run(*asked, "--linker", "query", *flags(sampled))
    ran = run(*asked, "--server", url)
    assert (ran.code, ran.out) == (0, own.out)
    assert "[3] " in ran.out
    line, note = ran.err.strip().split("\n")
    assert re.fullmatch(LINE, line), ran.err
    assert note == f"note: {CUT_OFF}"


def test_as_json_it_has_the_same_form(run: Run, url: str, sampled: Settings) -> None:
    asked = ("ask", QUESTION, "--json", "--top-k", "2", "--no-cache", "--max-tokens", "4", "--temperature", "0")
    own, ran = run(*asked, *flags(sampled)).json, run(*asked, "--server", url).json
    assert list(ran) == list(own)
    for name in ("question", "answer", "citations", "notes"):
        assert ran[name] == own[name]
    assert set(ran["report"]) == set(own["report"])
    assert ran["report"]["linker"] == "full"


def test_flags_of_sampling_reach_the_server(run: Run, url: str) -> None:
    def told(*arguments: str) -> str:
        ran = run("ask", QUESTION, "--server", url, "--json", "--max-tokens", "8", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return str(ran.json["answer"])

    hot = told("--temperature", "2", "--seed", "1")
    assert told("--greedy") != hot == told("--temperature", "2", "--seed", "1")
    assert told("--temperature", "2", "--seed", "0") != hot
    assert told("--temperature", "2", "--top-p", "1e-9") == told("--greedy")


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_it_imports_next_to_nothing(url: str, arguments: list[str]) -> None:
    command = [sys.executable, "-W", "error", "-c", LOADED.format(heavy=HEAVY) + MAIN, "ask", QUESTION, *arguments]
    env = outside(RAGCACHE_SERVER=url, RAGCACHE_COLLECTION="default")
    ran = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "set()"), ran.stderr
    assert len(ran.stdout.splitlines()) > 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-c", "nope"], "error: {url}: no collection 'nope'"),
        (["-c", "../x"], "error: {url}: "),
        (["--linker", "nope"], "error: {url}: unknown linker 'nope'"),
        (["--top-p", "0"], "error: {url}: top_p: Input should be greater than 0"),
        (["--greedy", "--temperature", "1"], "error: --greedy is temperature 0, and --temperature says 1.0:"),
        (["--engine", "vllm"], "error: --engine means nothing to the server {url}"),
        (["--top-tokens", "0"], "error: --top-tokens means nothing to the server {url}"),
        (["--data-dir", "x"], "error: --data-dir means nothing to the server {url}"),
    ],
)
def test_errors_are_one_line(run: Run, url: str, arguments: list[str], told: str) -> None:
    ran = run("ask", QUESTION, "--server", url, *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(told.format(url=url)), ran.err
    assert ran.err.count("\n") == 1


def test_nobody_there_is_one_line(run: Run) -> None:
    ran = run("ask", QUESTION, "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: no answer from http://127.0.0.1:1: Connection refused\n")


def test_an_interrupt_is_130_and_ends_the_answer_of_the_server(client: httpx2.Client, url: str, tmp_path: Path) -> None:
    def running() -> bool:
        return "ragcache_running_answers 0.0" not in client.get("/metrics").text

    command = [sys.executable, "-c", MAIN, "ask", QUESTION, "--server", url, "--max-tokens", "1500", "--greedy"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert running()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"Traceback" not in told
    wait_until(lambda: not running(), PATIENCE_S)


def test_a_server_with_keys_wants_one(
    run: Run, sampled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = beside(sampled, tmp_path)
    with open_catalog(settings) as catalog:
        _, key = catalog.keys.create("reader", ["read"])
        _, admin = catalog.keys.create("admin", ["admin"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        url = str(client.base_url).rstrip("/")
        asked = ("ask", QUESTION, "--server", url, "--max-tokens", "4", "--no-show-report")
        refused = run(*asked)
        assert refused.code == 1
        assert refused.err.startswith(f"error: {url}: this server wants a key")
        assert refused.err.endswith("(RAGCACHE_API_KEY is not set)\n")
        monkeypatch.setenv("RAGCACHE_API_KEY", key.replace("rk-", "rk-0"))
        refused = run(*asked)
        assert refused.err.endswith("was revoked (RAGCACHE_API_KEY is the one that was sent)\n")
        assert key[-8:] not in refused.err
        monkeypatch.delenv("RAGCACHE_API_KEY")
        Path(".env").write_text(f"RAGCACHE_SERVER={url}\nRAGCACHE_API_KEY={key}\n")
        Path(".env").chmod(0o600)
        ran = run("ask", QUESTION, "--max-tokens", "4", "--no-show-report")
        assert (ran.code, ran.err) == (0, f"note: .env in {Path.cwd()} names the server\nnote: {CUT_OFF}\n")


@pytest.fixture
def chat(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    def chat(lines: str, *arguments: str) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        return run("chat", "--server", url, "--max-tokens", "6", *arguments)

    return chat


def test_a_chat_is_kept_by_the_server_and_goes_on(chat: Run, pipeline: RagPipeline) -> None:
    ran = chat(f"{FIRST}\n/sources\n/new\n{SECOND}\n{FIRST}\n", "--greedy", "--top-k", "2")
    assert ran.code == 0, ran.err
    assert ran.err.count("first token") == 3
    assert [line[:3] for line in ran.out.splitlines() if line.startswith("[")] == ["[1]", "[2]"]
    stored = conversation_of(ran)
    messages = pipeline.conversation(stored).messages
    assert [message.content for message in messages][::2] == [SECOND, FIRST]
    again = chat(FIRST, "--continue", stored, "--no-show-report")
    assert conversation_of(again) == stored
    assert again.out == f"{pipeline.conversation(stored).messages[-1].content}\n"


def test_what_goes_wrong_with_a_question_does_not_end_the_chat(chat: Run, url: str) -> None:
    ran = chat(f"{'why ' * 3000}\n{FIRST}\n")
    assert ran.code == 0
    assert ran.err.startswith(f"error: {url}: the question is too long")
    assert "first token" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--continue", "nope"], "no conversation 'nope'"), (["-c", "nope"], "no collection 'nope'")],
)
def test_what_is_not_there_is_an_error(chat: Run, url: str, arguments: list[str], told: str) -> None:
    ran = chat(FIRST, *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {url}: {told}")


def test_what_a_model_writes_does_not_reach_the_terminal_raw(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"chunks": [{"tokens": 1, "tier": "\x1b[2J", "repaired": 0, "system": ""}], "ttft_s": 1}
    cited = {
        "number": 1,
        "source": "\x1b]0;x\x07.md",
        "heading": [],
        "pages": [],
        "quote": {"text": "\x9b1m", "pages": []},
    }
    about = {"citations": [cited], "report": report, "notes": ["\x1b[1mbold"]}
    piece = {"choices": [{"delta": {"content": "a\x1b[31m\r\u202eb\n"}, "finish_reason": None}]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "ragcache": about}
    answer = events(json.dumps(piece), json.dumps(last), "[DONE]")
    with saying(http("200 OK", "application/json", CARD), answer) as (server, _):
        ran = run("ask", QUESTION, "--server", server.url)
    assert ran.code == 0
    shown = ran.out + ran.err
    assert [sign for sign in shown if not sign.isprintable() and sign != "\n"] == []
    assert "\\x1b[31m\\r\\u202eb" in ran.out
