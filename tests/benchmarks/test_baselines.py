"""What linkers are compared with beside each other: re-ordered and shortened prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.models.loading import TorchModel
from app.settings import load_settings
from benchmarks.data import read_dataset
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.baselines import BASELINES, Compression, PrefixSet, parse_methods
from benchmarks.quality.engines import open_answering
from benchmarks.quality.measurement import Measurement, main, run
from benchmarks.quality.prompts import Prompt
from benchmarks.quality.substitution import Reordering, Shortening, Substitute, self_information
from benchmarks.quality.summary import case_of
from ragcache.errors import ConfigError
from ragcache.linking import LINKERS
from ragcache.linking.auto import Auto
from ragcache.linking.baselines import Full
from ragcache.types import Chunk, System, Text
from tests.benchmarks.conftest import letters
from tests.benchmarks.test_quality import FIELDS, TIMES, options

ROUNDING = 1e-12  # a matrix's sums depend on how its memory is aligned

SYSTEM, QUESTION = System((1, 2, 3)), Text((4, 5))
A, B, C, D = (Chunk((10 * n,) * n) for n in range(1, 5))  # of 1 to 4 tokens


def prompt(name: str, *chunks: Chunk) -> Prompt:
    return Prompt(name, (), chunks, (SYSTEM, *chunks, QUESTION))


def reordered(*prompts: tuple[Chunk, ...]) -> list[Substitute]:
    reordering, made = Reordering(), [prompt(str(n), *chunks) for n, chunks in enumerate(prompts)]
    for one in made:
        reordering.meet(one)
    return [reordering.of(one) for one in made]


def ids(*chunks: Chunk) -> tuple[int, ...]:
    return tuple(token for chunk in chunks for token in chunk.ids)


def test_baselines_stand_beside_linkers_and_are_none() -> None:
    assert parse_methods("auto,set, compress:ratio=0.3,full,compress") == {
        "auto": Auto(), "set": PrefixSet(), "compress:ratio=0.3": Compression(0.3), "full": Full(),
        "compress": Compression(),
    }  # fmt: skip
    assert not set(BASELINES) & set(LINKERS)
    assert case_of("full", Full(), "alone") == "full"
    assert case_of("set", PrefixSet(), "alone") == "set alone"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nope", "unknown linker 'nope': choose from auto, .*, set, compress"),
        ("set:ratio=0.2", "'set' cannot take 'ratio=0.2': it takes none"),
        ("compress:share=0.2", "'compress' cannot take 'share=0.2': choose from ratio"),
        ("compress:ratio=0.2,ratio=0.3", "'compress' cannot take 'ratio=0.3'"),
        ("compress:ratio=much", "ratio='much' is no number"),
        ("compress:ratio=0", "ratio=0.0 is out of range"),
        ("compress:ratio=nan", "ratio=nan is out of range"),
    ],
)
def test_what_a_baseline_does_not_know_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_methods(text)


def test_vllm_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    settings = load_settings(None, cache_dir=tmp_path, engine="vllm")
    chosen = QualityBenchOptions(parse_methods("auto,set"), data=tmp_path / "nothing")
    with pytest.raises(ConfigError, match="--linkers set: baselines run on the torch engine alone, not on vllm"):
        main(settings, chosen, tmp_path / "out.json")


def test_chunks_are_ordered_to_begin_as_an_earlier_prompt() -> None:
    first, second, third, fourth = reordered((A, B, C), (D, B, A), (C, D, A, B), (C, D))
    assert first == Substitute(SYSTEM, Text(ids(A, B, C) + QUESTION.ids), 6 / 9)
    assert second.placed == System(SYSTEM.ids + ids(A, B))
    assert second.rest == Text(ids(D) + QUESTION.ids)
    assert second.part == 4 / 10, "of what stands before the question, System among it, as reports count"
    assert third.placed == System(SYSTEM.ids + ids(A, B, D)), "the longest one, of a prompt as it was answered"
    assert fourth == Substitute(SYSTEM, Text(ids(C, D) + QUESTION.ids), 7 / 10), "nothing began with either"


def test_the_order_stays_where_another_gains_nothing() -> None:
    one, two = Chunk((1, 1)), Chunk((2, 2))
    *_, last = reordered((one, A), (two, A), (two, one))
    assert last.placed == System(SYSTEM.ids + two.ids)


def test_a_chunk_that_comes_twice_is_taken_as_often_as_it_is_there() -> None:
    *_, last = reordered((A, A, B), (B, A))
    assert last.placed == System(SYSTEM.ids + A.ids)
    assert last.rest == Text(ids(B) + QUESTION.ids)


def test_self_information_is_that_of_the_whole_text(parts: TorchModel) -> None:
    system, chunk = parts.template.system(), parts.template.chunk("Apples and pears grow in the old orchard. " * 40)
    found = self_information(parts.engine, system, chunk)
    both = torch.tensor([(*system.ids, *chunk.ids)])
    with torch.inference_mode():
        told = parts.engine.stock()(both).logits[0].log_softmax(-1)
    expected = [-float(told[len(system) - 1 + n, token]) for n, token in enumerate(chunk.ids)]
    assert np.allclose(found, expected, atol=1e-3)
    assert len(chunk) > 128, "longer than what is held at a time"


def test_the_tokens_that_say_most_are_kept_in_their_order(parts: TorchModel) -> None:
    template = parts.template
    chunk = template.chunk("Apples and pears grow in the old orchard behind the mill.")
    asked = Prompt("one", (), (chunk, chunk), (template.system(), chunk, chunk, template.question("Which?")))
    made = Shortening(parts.engine, 0.3).of(asked)
    information = self_information(parts.engine, template.system(), chunk)
    count = -(-3 * len(chunk) // 10)
    kept = sorted(sorted(range(len(chunk)), key=lambda n: -information[n])[:count])
    short = tuple(chunk.ids[n] for n in kept)
    assert made.placed.ids == template.system().ids
    assert made.rest.ids == short + short + template.question("Which?").ids
    assert made.part == 2 * count / (len(template.system()) + 2 * len(chunk))
    everything = Shortening(parts.engine, 1.0).of(asked)
    assert everything.rest.ids == (*chunk.ids, *chunk.ids, *template.question("Which?").ids)


def test_first_tokens_are_those_of_a_server_that_has_the_beginning(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed from RAM, all else computed: as many tokens as `part` tells."""
    from benchmarks.quality.torch import TorchAnswering

    reports: list[tuple[str, Any]] = []
    first_token = TorchAnswering.first_token

    def recorded(self: TorchAnswering, segments: Any, linker: str) -> Any:
        report = first_token(self, segments, linker)
        reports.append((linker, report))
        return report

    monkeypatch.setattr(TorchAnswering, "first_token", recorded)
    out = tmp_path / "out.json"
    chosen = options("set,compress:ratio=0.3", contexts=("alone",), chunk_tokens=30, ttft_prompts=4)
    run(parts, letters, read_dataset(corpora_folder), chosen, out)
    answers = json.loads(out.read_text())["answers"].values()
    parts_told = [result["part"] for record in answers for result in record["results"]]
    assert len(reports) == 3 * len(answers)
    full = [report for linker, report in reports if linker == "full"]
    placed = [report for linker, report in reports if linker != "full"]
    for number, (report, part) in enumerate(zip(placed, parts_told, strict=True)):
        assert report.system_tier == "ram"
        rest = report.question_tokens + report.other_computed
        whole, question = full[number // 2].before_question, full[number // 2].question_tokens
        assert rest - question == pytest.approx(part * whole)


def test_a_prompt_in_its_own_order_is_answered_as_the_full_recompute(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path
) -> None:
    data = read_dataset(corpora_folder)
    more = {"chunk_tokens": 30, "ttft_prompts": 1, "top_k": 4, "order": "shuffled"}
    chosen = options("set,compress,compress:ratio=1", contexts=("alone",), **more)
    rows = run(parts, letters, data, chosen, tmp_path / "out.json")
    assert all(set(row) == FIELDS for row in rows)
    by_question = {
        name: {result["linker"]: result for result in record["results"]}
        for name, record in json.loads((tmp_path / "out.json").read_text())["answers"].items()
    }
    by_set = [results["set"] for results in by_question.values()]
    assert [result["kl"] == 0.0 for result in by_set] == [True, False, True, False], "the first of each corpus"
    assert by_set[0]["part"] > by_set[1]["part"]
    assert all(results["compress:ratio=1"]["kl"] == 0.0 for results in by_question.values())
    assert all(results["compress"]["kl"] > 1e-6 for results in by_question.values())


@pytest.mark.slow
def test_an_interrupted_run_knows_its_earlier_prompts(
    parts: TorchModel, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, measure = read_dataset(corpora_folder), tmp_path / "out.json", Measurement._measure
    chosen = {"contexts": ("alone",), "chunk_tokens": 30}
    at_once = run(parts, letters, data, options("set", **chosen), out)
    left = iter(range(3))

    def interrupted(self: Measurement, *given: Any, **named: Any) -> Any:
        if next(left) == 1:
            raise KeyboardInterrupt
        return measure(self, *given, **named)

    monkeypatch.setattr(Measurement, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(parts, letters, data, options("set", **chosen), out)
    monkeypatch.setattr(Measurement, "_measure", measure)
    resumed = run(parts, letters, data, options("set", resume=True, **chosen), out)
    for row, expected in zip(resumed, at_once, strict=True):
        assert {key: row[key] for key in FIELDS - TIMES} == {key: expected[key] for key in FIELDS - TIMES}


def test_what_is_placed_changes_nothing_but_the_time(parts: TorchModel) -> None:
    template = parts.template
    chunks = tuple(template.chunk(text) for text in ("Apples grow here.", "Pears are ripe.", "Plums are not."))
    asked = Prompt("one", (), chunks, (template.system(), *chunks, template.question("Which?")))
    made = Substitute.of(asked, asked.segments[:2], asked.chunks[1:])
    answering = open_answering(parts, "alone", 4)
    full = answering.reference(asked.segments)
    answering.cache.system_variant(made.placed)
    assert answering.linked(made.segments, "naive", full).divergence.kl < 1e-6
    assert answering.linked(made.segments, "full", full).divergence.kl < ROUNDING
