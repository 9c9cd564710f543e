"""What the cache would do for a question is what it does then."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.cachecare.explaining import ALONE, EXACT, SAME, SOME, explain
from tests.app.cli.conftest import flags
from tests.app.cli.inside import Run, make_run

QUESTION = "Who designed the lighthouse?"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sampled: Settings) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, *flags(sampled))


def test_it_tells_what_an_answer_does_then(sampled: Settings) -> None:
    settings = sampled.model_copy(update={"link_when": "sooner", "top_k": 4})
    with RagPipeline(settings) as pipeline:
        before = pipeline.models.store.stats()
        told = explain(pipeline, QUESTION)
        assert pipeline.models.store.stats() == before, "nothing was opened"
        again = explain(pipeline, QUESTION)
        assert again == told
        answer = pipeline.ask(QUESTION)
    assert told.tokens == answer.report.prompt_tokens
    assert [one.tokens for one in told.chunks] == [chunk.tokens for chunk in answer.report.chunks]
    assert [one.tier for one in told.chunks] == [chunk.tier for chunk in answer.report.chunks]
    assert [one.variant == EXACT and not one.passed for one in told.chunks] == [
        chunk.exact for chunk in answer.report.chunks
    ]
    assert {one.variant for one in told.chunks} <= {EXACT, SAME, SOME, ALONE}
    assert told.planned_s is not None and told.plain_s is not None and 0 < told.planned_s <= told.plain_s * 1.01


def test_as_a_table(run: Run) -> None:
    ran = run("cache", "explain", QUESTION, "--top-k", "3")
    assert ran.code == 0, ran.err
    head, *rows = ran.out.split("\n\n")[0].splitlines()
    assert head.split()[:4] == ["chunk", "tokens", "from", "computed"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert all("lighthouse.md" in row or "bakery.md" in row or "meerkats.md" in row for row in rows)
    assert "tokens with the question, system prompt from disk; linker auto" in ran.out


def test_as_json(run: Run) -> None:
    told = run("cache", "explain", QUESTION, "--json").json
    assert told["question"] == QUESTION and len(told["chunks"]) > 2
    assert told["planned_s"] is None, "where all is linked that is cached nothing is foretold"


def test_what_cannot_be_asked_is_told(run: Run) -> None:
    ran = run("cache", "explain", QUESTION, "-c", "nope")
    assert ran.code == 1 and "nope" in ran.err
    assert run("cache", "explain", "").code == 1
