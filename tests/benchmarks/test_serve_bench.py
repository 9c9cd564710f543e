"""The benchmark of the server: real servers over the small random model, but for what a stream may look like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.samples import read_samples
from app.settings import Settings, load_settings
from benchmarks.serve import SERVE_SYSTEMS, ServeBenchOptions
from benchmarks.serve.child import serving
from benchmarks.serve.clients import StreamedAnswer, StreamingClients, stream_answer
from benchmarks.serve.measurement import run
from ragcache.errors import ConfigError

FIELDS = {
    "system", "clients", "ccr", "requests", "errors", "rps", "ttft_p50", "ttft_p99", "itl_p99", "e2e_p50", "e2e_p99",
    "prompt", "cached", "rss_mb", "rss_growth_mb", "fds", "fds_growth",
}  # fmt: skip
SHORT = ServeBenchOptions(
    systems=("stock", "prefix", "linked"), clients=(2,), seconds=3.0, rounds=1, tokens=500, chunk_tokens=64,
    population=12, answer_tokens=6, warm=4,
)  # fmt: skip


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32", threads=1)


@pytest.mark.slow
def test_every_system_has_a_row(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "serve.json"
    rows = run(settings, [*read_samples().values()], SHORT, tmp_path / "servers", out)
    document = json.loads(out.read_text())
    assert document["rows"] == rows
    assert [(row["system"], row["clients"]) for row in rows] == [(name, 2) for name in SHORT.systems]
    for row in document["rows"]:
        assert set(row) == FIELDS
        assert (row["errors"], row["requests"] >= 2) == (0, True)
        assert 0 < row["ttft_p50"] <= row["ttft_p99"] <= row["e2e_p99"]
        assert row["prompt"] == pytest.approx(SHORT.tokens, rel=0.1), "as long for each"
    stock, prefix, linked = document["rows"]
    assert (stock["cached"], linked["cached"] > 0.5) == (0, True)
    assert prefix["cached"] < linked["cached"]
    assert document["failures"] == []
    assert document["settings"]["servers"]["linked"] == {"linker": "auto"}
    table = capsys.readouterr().out
    assert all(f"\n{name} " in table for name in SHORT.systems)
    assert "ttft_p99" in table


@pytest.mark.slow
def test_requests_come_as_in_the_trace(settings: Settings, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"t": second}) + "\n" for second in range(0, 400, 10)))
    options = replace(
        SHORT, systems=("linked",), arrivals="ragpulse", trace=trace, rate=1.0, seconds=4.0, rounds=2, ccr=(0.5, 0.95)
    )
    half, whole = run(settings, [*read_samples().values()], options, tmp_path / "servers", None)
    assert (half["ccr"], half["requests"], half["errors"]) == (0.5, 8, 0)
    assert (whole["ccr"], whole["requests"], whole["errors"]) == (0.95, 8, 0)
    assert isinstance(half["cached"], float)
    assert isinstance(whole["cached"], float)
    assert half["cached"] < whole["cached"]


def test_a_trace_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--trace"):
        run(settings, [*read_samples().values()], replace(SHORT, arrivals="ragpulse"), tmp_path / "servers", None)


@pytest.mark.slow
def test_what_a_killed_server_leaves_unanswered_is_counted(settings: Settings, tmp_path: Path) -> None:
    with serving(settings, tmp_path / "server", **SERVE_SYSTEMS["stock"].settings) as child:
        clients = StreamingClients(child.url, lambda: child.alive)
        use = child.use()
        assert use is not None
        assert min(use.rss, use.fds) > 0

        def body(number: int) -> Mapping[str, Any]:
            if number == 5:
                child.process.kill()
                child.process.wait()
            return {
                "model": child.model, "messages": [{"role": "user", "content": f"Why {number}?"}], "stream": True,
                "max_tokens": 4, "logit_bias": {"0": -100, "2": -100},
            }  # fmt: skip

        answers = clients.closed(body, 2, inf)
    failed = [one for one in answers if one.error]
    assert 4 <= len(answers) - len(failed) <= 5, "the one beside it may have been under way"
    assert {one.error.partition(":")[0] for one in failed} <= {"ConnectError", "ReadError", "RemoteProtocolError"}
    assert len(failed) >= 2, "both clients were told, and asked no more"
    assert child.use() is None


def test_a_server_that_cannot_start_is_told(settings: Settings, tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"the server ended with 1: .*RAGCACHE_DEVICE='abacus'"),
        serving(settings, tmp_path / "server", device="abacus"),
    ):
        pass


EVENT = 'data: {"choices":[{"delta":{"content":"%s"}}],"usage":null}\n\n'
USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
DONE = "data: [DONE]\n\n"


def streamed(text: str, status: int = 200) -> StreamedAnswer:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(status, text=text))
    with httpx2.Client(base_url="http://127.0.0.1", transport=transport) as client:
        return stream_answer(client, {}, 0.0, 0.0)


def test_events_with_text_count() -> None:
    answer = streamed(EVENT % "" + EVENT % "To" + ": a comment\n\n" + EVENT % "day" + USAGE + DONE)
    assert (answer.error, len(answer.pieces), answer.prompt, answer.cached) == ("", 2, 9, 4)
    assert answer.pieces[0] == answer.ttft <= answer.pieces[1] <= answer.end == answer.e2e
    assert len(answer.gaps) == 1


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("later", 429, "status 429: later"),
        (EVENT % "To", 200, "ended before its end"),
        (EVENT % "To" + 'data: {"error":{"message":"no disk"}}\n\n' + DONE, 200, "no disk"),
        ("data: {\n\n", 200, "JSONDecodeError"),
    ],
)
def test_what_is_no_answer_is_an_error(text: str, status: int, told: str) -> None:
    assert told in streamed(text, status).error


def test_a_server_that_has_no_model_is_not_waited_for(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(ConfigError, match=r"the server has no model: .*empty"),
        serving(settings, tmp_path / "own", model=str(tmp_path / "empty")),
    ):
        pass
