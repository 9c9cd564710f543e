from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import Settings
from app.answering import Citation
from app.answering.stream import CUT_OFF
from tests.app.cli.inside import Run, make_run

QUESTION = "Who designed the lighthouse?"
CUT = re.escape(f"note: {CUT_OFF}\n")
LINE = r"first token \d+\.\d\d s · \d/\d chunks from (ram|disk)( · .*)? · \d+ % repaired"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sampled: Settings) -> Run:
    monkeypatch.chdir(tmp_path)
    folders = ("--data-dir", str(sampled.data_dir), "--cache-dir", str(sampled.cache_dir))
    return make_run(capsys, monkeypatch, "--model", sampled.model, "--max-tokens", "6", *folders)


def test_the_answer_then_its_citations_and_beside_them_the_report(run: Run) -> None:
    ran = run("ask", QUESTION, "--top-k", "3", "--linker", "query")
    assert ran.code == 0
    answer, citations = ran.out.split("\n\n")
    assert answer.strip()
    places = re.findall(r"^\[(\d)\] (\S+\.md), pages? \d(?:-\d)?$\n    “.+”$", citations, re.MULTILINE)
    assert [number for number, _ in places] == ["1", "2", "3"]
    assert "lighthouse.md" in {name for _, name in places}
    assert re.fullmatch(f"{LINE}\n{CUT}", ran.err), ran.err


@pytest.mark.slow
def test_as_json(run: Run) -> None:
    ran = run("ask", QUESTION, "--json", "--top-k", "2", "--no-cache")
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"question", "answer", "citations", "support", "report", "notes"}
    assert ran.json["question"] == QUESTION
    assert len([Citation.from_dict(one) for one in ran.json["citations"]]) == 2
    assert ran.json["report"]["linker"] == "full"
    assert [chunk["tier"] for chunk in ran.json["report"]["chunks"]] == ["computed"] * 2


@pytest.mark.slow
def test_what_was_left_out_is_told_also_without_the_report(run: Run) -> None:
    ran = run("ask", QUESTION, "--top-k", "40", "--no-show-report")
    assert ran.code == 0
    assert re.fullmatch(r"note: the lowest-ranked \d+ of \d+ chunks left out: .+\n" + CUT, ran.err)


@pytest.mark.slow
def test_flags_of_sampling_win_over_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*arguments: str) -> str:
        ran = run("ask", QUESTION, "--json", "--no-cache", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return str(ran.json["answer"])

    greedy = told()  # as the tests' environment says
    hot = told("--temperature", "2", "--seed", "1")
    assert greedy != hot == told("--temperature", "2", "--seed", "1") != told("--temperature", "2", "--seed", "2")
    assert told("--temperature", "2", "--top-p", "1e-9") == greedy
    monkeypatch.setenv("RAGCACHE_TEMPERATURE", "2")
    monkeypatch.setenv("RAGCACHE_SEED", "1")
    assert told() == hot
    assert told("--greedy") == told("--temperature", "0") == greedy


@pytest.mark.slow
def test_a_budget_of_tokens(run: Run) -> None:
    ran = run("ask", QUESTION, "--top-k", "4", "--top-tokens", "1", "--no-show-report")
    assert len(re.findall(r"^\[\d\] ", ran.out, re.MULTILINE)) == 1
    alone = r"note: the best chunk alone takes \d+ tokens, more than the budget of 1\n"
    assert re.fullmatch(alone + "note: 3 of 4 chunks left out: the budget of 1 tokens was full\n" + CUT, ran.err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([QUESTION, "-c", "nope"], "no collection 'nope'; there are: default. `ragcache ingest PATH -c nope` makes it"),
        ([" "], "the question is empty: ask something"),
        ([QUESTION, "--linker", "nope"], "unknown linker 'nope'"),
        (
            [QUESTION, "--greedy", "--temperature", "1"],
            "--greedy is temperature 0, and --temperature says 1.0:",
        ),
        ([QUESTION, "--top-p", "0"], "RAGCACHE_TOP_P=0.0 given as a flag should be greater than 0"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: list[str], told: str) -> None:
    ran = run("ask", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {told}")
    assert ran.err.count("\n") == 1
