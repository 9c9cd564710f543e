"""What the benchmark of the server asks, and its arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.models.chat_template import load_tokenizer
from app.prompt import PromptTemplate
from app.samples import read_samples
from benchmarks.serve import SERVE_SYSTEMS, ServeBenchOptions, parse_shares
from benchmarks.serve.child import ProcessUse, growth
from benchmarks.serve.clients import StreamedAnswer, trace_moments
from benchmarks.serve.figures import CaseFigures, at_equal_wait
from benchmarks.serve.prompts import PassageQuestion, ServeWorkload
from ragcache.errors import ConfigError

OPTIONS = ServeBenchOptions(tokens=500, chunk_tokens=64, population=20)


@pytest.fixture(scope="session")
def template(smollm2: Path) -> PromptTemplate:
    return PromptTemplate(load_tokenizer(smollm2), "Answer from the passages.")


@pytest.fixture(scope="session")
def workload(template: PromptTemplate) -> ServeWorkload:
    return ServeWorkload(template, [*read_samples().values()], OPTIONS)


def texts(system: str, workload: ServeWorkload, question: PassageQuestion) -> list[str]:
    caches = [f"id-{place}" for place in range(len(workload.passages))]
    told, asked = workload.body(SERVE_SYSTEMS[system], "tiny", caches, question)["messages"]
    return [told["content"], *(part.get("text") or part["cache_id"] for part in asked["content"])]


def test_a_question_is_the_same_again_and_no_other_is(workload: ServeWorkload) -> None:
    first, again, other = (workload.question(0.9, number) for number in ((1, 0, 7), (1, 0, 7), (1, 0, 8)))
    assert first == again
    assert (first.passages, first.rest) != (other.passages, other.rest)


@pytest.mark.parametrize("ccr", [0.25, 0.5, 0.9])
def test_so_much_of_a_prompt_is_passages(template: PromptTemplate, workload: ServeWorkload, ccr: float) -> None:
    for number in range(5):
        question = workload.question(ccr, (1, number))
        passages = sum(workload.passages[place].tokens for place in question.passages)
        assert passages == pytest.approx(ccr * OPTIONS.tokens, abs=OPTIONS.chunk_tokens / 2)
        rest = template.count(question.rest)
        assert passages + rest == pytest.approx(OPTIONS.tokens, abs=60), "System, the question and the template"


def test_systems_are_asked_about_the_same(workload: ServeWorkload) -> None:
    question = workload.question(0.9, (1, 0, 7))
    stock, prefix, linked = (texts(name, workload, question) for name in ("stock", "prefix", "linked"))
    assert linked[1:-1] == [f"id-{place}" for place in question.passages]
    assert prefix[1:-1] == [f"{workload.passages[place].text}\n\n" for place in question.passages]
    assert (stock[1:], prefix[-1]) == (prefix[1:], linked[-1])
    assert (prefix[0], stock[0]) == (linked[0], f"{linked[0]} (1.0.7)")


def test_there_must_be_enough_passages(template: PromptTemplate) -> None:
    with pytest.raises(ConfigError, match="give more --data or --population"):
        ServeWorkload(template, [*read_samples().values()], replace(OPTIONS, tokens=5000))


def row(system: str, clients: int, rps: float, ttft_p99: float | None, ccr: float = 0.9) -> dict[str, Any]:
    return {"system": system, "clients": clients, "ccr": ccr, "rps": rps, "ttft_p99": ttft_p99}


def test_what_is_answered_within_the_same_wait_lies_between_two_that_were_measured() -> None:
    rows = [row("prefix", 1, 0.5, 2.0), row("linked", 1, 1.0, 0.5), row("linked", 8, 2.0, 3.5)]
    (found,) = at_equal_wait(rows)
    assert (found["system"], found["clients"], found["ttft_p99"]) == ("prefix", 1, 2.0)
    assert (found["linked_rps"], found["ratio"], found["bound"]) == (1.5, 3.0, "interpolated")


def test_more_clients_might_have_had_more() -> None:
    (found,) = at_equal_wait([row("epic", 8, 1.0, 9.0), row("linked", 1, 1.0, 0.5), row("linked", 8, 0.9, 3.5)])
    assert (found["linked_rps"], found["ratio"], found["bound"]) == (1.0, 1.0, "at least"), "the most, not the last"


def test_there_is_no_ratio_where_ours_is_never_so_soon() -> None:
    assert at_equal_wait([row("prefix", 1, 0.5, 2.0), row("linked", 1, 1.0, 2.5)]) == []
    assert at_equal_wait([row("prefix", 1, 0.5, 2.0), row("linked", 1, 1.0, 0.5, ccr=0.5)]) == [], "other prompts"
    assert at_equal_wait([row("prefix", 1, 0.0, None), row("linked", 1, 1.0, 2.5)]) == []
    assert at_equal_wait([row("prefix", 1, 0.5, 2.0)]) == []


def test_rows() -> None:
    figures = CaseFigures()
    figures.add([StreamedAnswer(0.0, (1.0, 1.5), 2.0, prompt=100, cached=90), StreamedAnswer(0.0, error="gone")])
    figures.add([StreamedAnswer(1.0, (4.0, 4.5, 6.0), 6.0, prompt=100, cached=50), StreamedAnswer(0.5, error="gone")])
    figures.uses += [ProcessUse(rss, 10, 0.0) for rss in (1_000_000, *[2_000_000] * 10, *[5_000_000] * 5)]
    made = figures.row("linked", 2, 0.9)
    assert (made["requests"], made["errors"], figures.failures) == (4, 2, {"gone": 2})
    assert made["rps"] == 2 / 8, "of both rounds, to their last answers"
    assert (made["ttft_p50"], made["e2e_p50"]) == (2.0, 3.5)
    assert made["itl_p99"] == pytest.approx(1.48)
    assert (made["prompt"], made["cached"]) == (100, 0.7)
    assert (made["rss_mb"], made["rss_growth_mb"], made["fds"], made["fds_growth"]) == (5.0, 3.0, 10.0, 0.0)


def test_a_row_without_answers() -> None:
    figures = CaseFigures()
    figures.add([StreamedAnswer(0.0, error="gone")])
    made = figures.row("linked", 2, 0.9)
    assert (made["requests"], made["errors"], made["rps"]) == (1, 1, 0.0)
    assert (made["ttft_p99"], made["itl_p99"], made["cached"], made["rss_growth_mb"]) == (None, None, None, None)


def test_what_grows_in_the_first_third_does_not_count() -> None:
    assert growth([*range(100), *[100.0] * 200]) == 0
    assert growth(list(range(300))) == 160, "a fifth of what is left at either side, by their medians"
    assert growth([1.0] * 4) is None


def trace(path: Path, seconds: list[float]) -> Path:
    path.write_text("".join(json.dumps({"t": second, "session": "s"}) + "\n" for second in seconds))
    return path


def test_a_trace_is_run_as_fast_as_its_rate_wants(tmp_path: Path) -> None:
    bursts = trace(tmp_path / "trace.jsonl", [100.0 * burst + place for burst in range(20) for place in range(3)])
    moments = trace_moments(bursts, 3.0, 8.0, seed=1)
    assert len(moments) == pytest.approx(24, abs=3)
    assert (moments[0], moments[-1] < 8) == (0.0, True)
    gaps = sorted(after - before for before, after in pairwise(moments))
    assert gaps[-1] > 20 * gaps[0], "bursts stay bursts"
    assert moments == trace_moments(bursts, 3.0, 8.0, seed=1) != trace_moments(bursts, 3.0, 8.0, seed=3)


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    empty, short = trace(tmp_path / "empty", []), trace(tmp_path / "short", [0.0, 1.0, 2.0])
    other = tmp_path / "other"
    other.write_text('{"question": "Why?"}\n')
    for path, told in ((empty, "fewer than two"), (short, "it lasts"), (other, "seconds `t`"), (tmp_path, "seconds")):
        with pytest.raises(ConfigError, match=told):
            trace_moments(path, 1.0, 60.0, seed=0)


def test_shares_of_the_command_line() -> None:
    assert parse_shares("0.5,1", "ccr") == (0.5, 1.0)
    for text in ("0", "1.2", "a", ""):
        with pytest.raises(ConfigError, match="--ccr"):
            parse_shares(text, "ccr")
