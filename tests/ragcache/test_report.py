"""What an answer's report says, against the passes that were really made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.linking import LINKERS
from ragcache.report import COMPUTED, Report
from ragcache.types import Chunk, Segment, Text
from tests.tiny import Tiny, draw, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38, 25)
(STRANGER,) = make_chunks(27, seed=5)
TEXT = Text(draw(6, 50))
MIDDLE = [DOCUMENT[3], TEXT, STRANGER, DOCUMENT[1], DOCUMENT[0]]  # of these, 96 tokens are cached
BEFORE = sum(map(len, MIDDLE)) + len(SYSTEM)

MakeCache = Callable[..., ChunkCache]


def prompt(*middle: Segment) -> list[Segment]:
    return [SYSTEM, *middle, QUESTION]


@contextmanager
def counting_passes(tiny: Tiny) -> Iterator[list[int]]:
    """Rows that went through each layer."""
    rows: list[int] = []

    def count(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        rows.append(len(output))

    handles = [layer.mlp.register_forward_hook(count) for layer in tiny.model.model.layers]
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()


def charge(report: Report) -> float:
    return report.repaired + report.computed + report.charged


SPECS = [*LINKERS, "query:ratio=1", "query:first=3,ratio=0", "cacheblend:ratio=1", "cacheblend:ratio=0,full_layers=3",
         "cacheblend:ratio=0.5,full_layers=3"]  # fmt: skip


@pytest.mark.parametrize("linker", SPECS)
@pytest.mark.parametrize("cold", [False, True])
def test_every_pass_is_charged(make_cache: MakeCache, tiny: Tiny, linker: str, cold: bool) -> None:
    cache = make_cache(*(() if cold else DOCUMENT))
    with counting_passes(tiny) as rows:
        report = prefill_prompt(cache, prompt(*MIDDLE), linker=linker).report
    passes = sum(rows) / cache.engine.spec.layers - len(QUESTION)
    assert charge(report) == pytest.approx(passes)
    assert report.part == pytest.approx(passes / BEFORE)


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=5", "full"])
def test_what_is_not_computed_was_cached(make_cache: MakeCache, tiny: Tiny, linker: str) -> None:
    cache = make_cache(*DOCUMENT)
    with counting_passes(tiny) as rows:
        report = prefill_prompt(cache, prompt(*MIDDLE), linker=linker).report
    assert report.prompt_tokens - report.cached == sum(rows) / cache.engine.spec.layers
    assert report.to_dict()["cached"] == report.cached


@pytest.mark.parametrize("linker", SPECS)
def test_every_token_is_accounted_for(make_cache: MakeCache, linker: str) -> None:
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(*MIDDLE), linker=linker).report
    chunks = [segment for segment in MIDDLE if isinstance(segment, Chunk)]
    assert [chunk.chunk for chunk in report.chunks] == [chunk.hash for chunk in chunks]
    for chunk, segment in zip(report.chunks, chunks, strict=True):
        assert chunk.tokens == len(segment) == chunk.reused + chunk.repaired + chunk.computed
        assert min(chunk.reused, chunk.repaired, chunk.computed) >= 0
    assert report.linker == linker.partition(":")[0]
    assert report.prompt_tokens == BEFORE + len(QUESTION)
    assert (report.before_question, report.question_tokens) == (BEFORE, len(QUESTION))
    system_reused = 0 if report.system_tier == COMPUTED else len(SYSTEM)
    assert report.reused + report.repaired + report.computed + system_reused == BEFORE


def test_what_came_from_where(make_cache: MakeCache) -> None:
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(*MIDDLE), linker="first_tokens:k=5").report
    last, stranger, second, first = report.chunks
    assert (last.tier, stranger.tier, second.tier, first.tier) == ("ram", COMPUTED, "ram", "ram")
    assert [chunk.repaired for chunk in report.chunks] == [0, 0, 5, 5]
    assert [chunk.computed for chunk in report.chunks] == [0, len(STRANGER), 0, 0]
    assert (report.system_tier, report.other_computed) == ("ram", len(TEXT))
    assert last.nbytes == len(DOCUMENT[3]) * 768  # 2 · 3 layers · 2 heads · 16 dimensions · 4 bytes
    assert stranger.nbytes == 0
    assert report.part == (10 + len(STRANGER) + len(TEXT)) / BEFORE


def test_the_share_of_the_old_context(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT[:3])
    report = prefill_prompt(cache, prompt(DOCUMENT[0], STRANGER, DOCUMENT[2])).report
    overlaps = [chunk.overlap for chunk in report.chunks]
    assert overlaps[0] == 1.0
    assert overlaps[1] == 0.0
    assert 0.0 < overlaps[2] < 1.0


@pytest.mark.parametrize(
    ("linker", "charged"),
    [
        ("naive", 0.0),
        ("query:ratio=0.1", 5.0),
        ("query:first=4,ratio=0", 0.0),  # nothing to choose, so the question is not asked
        ("cacheblend:ratio=0.25", (7 + 69) * 2 / 3 - 18 * 2 / 3),  # 18 of 69 tokens are selected
        ("cacheblend:ratio=0", 0.0),
    ],
)
def test_probes_and_full_layers_are_charged(make_cache: MakeCache, linker: str, charged: float) -> None:
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(DOCUMENT[2], DOCUMENT[1]), linker=linker).report
    assert report.charged == pytest.approx(charged)


@pytest.mark.parametrize("place", ["before", "behind"])
def test_missing_chunks_are_no_part_of_a_probe(make_cache: MakeCache, place: str) -> None:
    chunks = (STRANGER, DOCUMENT[2], DOCUMENT[1]) if place == "before" else (DOCUMENT[2], DOCUMENT[1], STRANGER)
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(*chunks), linker="query:ratio=0.1").report
    assert report.charged == len(QUESTION)
    assert report.computed == len(STRANGER)


def test_a_probe_that_stops_early_is_gone_on_with_where_nothing_is_missing(make_cache: MakeCache) -> None:
    cache = make_cache(*DOCUMENT)
    whole, lacking = (
        prefill_prompt(cache, prompt(*chunks), linker="auto:depth=0.34").report
        for chunks in ((DOCUMENT[3], DOCUMENT[2]), (STRANGER, DOCUMENT[2]))
    )
    assert whole.charged == pytest.approx(1 / 3), "of the question, its last token twice"
    assert lacking.charged == pytest.approx(len(QUESTION) / 3), "its hidden states have not seen what was missing"
    assert lacking.computed == len(STRANGER)


def test_the_system_segment_is_computed_once_and_charged_then(make_cache: MakeCache) -> None:
    cache = make_cache()
    first, second = (prefill_prompt(cache, prompt(DOCUMENT[0])).report for _ in range(2))
    assert (first.system_tier, first.other_computed) == (COMPUTED, len(SYSTEM))
    assert (second.system_tier, second.other_computed) == ("ram", 0)
    assert first.part == 1.0
    assert second.part == len(DOCUMENT[0]) / (len(DOCUMENT[0]) + len(SYSTEM))


def test_a_full_recompute_reads_nothing(make_cache: MakeCache) -> None:
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(*DOCUMENT), linker="full").report
    assert (report.part, report.reused, report.charged) == (1.0, 0, 0.0)
    assert all(chunk.nbytes == 0 for chunk in report.chunks)


def test_a_prompt_without_chunks(make_cache: MakeCache) -> None:
    report = prefill_prompt(make_cache(*DOCUMENT), prompt(TEXT)).report
    assert (report.before_question, report.question_tokens) == (len(SYSTEM), len(TEXT) + len(QUESTION))
    assert (report.part, report.chunks) == (0.0, [])


def test_a_finished_report_can_be_written_down(make_cache: MakeCache) -> None:
    answer = make_cache(*DOCUMENT, keep_missed=True).generate(prompt(*MIDDLE), max_tokens=3)
    assert answer.report.ttft_s > 0
    list(answer)
    written = json.loads(json.dumps(answer.report.to_dict()))
    assert written["part"] == answer.report.part
    assert written["chunks"][1]["tier"] == COMPUTED
    assert (written["answer_tokens"], written["incidents"]) == (3, [])
    assert set(written["seconds"]) == {"plan", "load", "place", "link", "keep"}
    assert written["decode_s"] > 0
