"""The means over a run's questions, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median

from benchmarks.output import Row
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.baselines import Method
from benchmarks.quality.metrics import estimate
from benchmarks.quality.records import Record
from ragcache.linking.base import Linker
from ragcache.report import FULL

ESTIMATED = ("kl", "kl_first", "agree", "rouge_l", "f1")  # with an interval each
INTERVALS = tuple(f"{name}_{end}" for name in ESTIMATED for end in ("low", "high"))


def case_of(spec: str, method: Method, context: str) -> str:
    """What is timed. The full recompute is one case, whatever chunks were computed behind."""
    return FULL if isinstance(method, Linker) and method.recompute_all else f"{spec} {context}"


def summarise(records: Sequence[Record], options: QualityBenchOptions, engine: str) -> list[Row]:
    """A row per splitter, linker and context, means over the questions."""
    rows: list[Row] = []
    for splitter, (spec, method), context in product(options.splitters, options.linkers.items(), options.contexts):
        head = {"splitter": splitter, "linker": spec, "context": context}
        results = [
            result
            for record in records
            for result in record["results"]
            if all(result[name] == value for name, value in head.items())
        ]
        timed = [record["ttft"][splitter] for record in records if record["ttft"]]
        times = _summarise_times(timed, case_of(spec, method, context))
        part = sum(result["part"] for result in results) / len(results)
        figures = _estimates(results, options.seed) | {"part": part} | times | {"n": len(results)}
        rows.append(head | {"pool": options.pool, "shape": options.shape, "engine": engine} | figures)
    return rows


def _estimates(results: Sequence[Record], seed: int) -> dict[str, float | None]:
    """Each figure with its interval; none where no question has it."""
    found: dict[str, float | None] = {}
    for name in ESTIMATED:
        values = [result[name] for result in results if result[name] is not None]
        if not values:
            found |= {name: None, f"{name}_low": None, f"{name}_high": None}
            continue
        mean = estimate(values, seed)
        found |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return found


def _summarise_times(timed: Sequence[dict[str, list[float]]], case: str) -> dict[str, float | None]:
    """Medians over rounds, then over prompts; the speed-up is each prompt's own."""
    if not timed:
        return {"ttft_s": None, "ttft_speedup": None}
    ours = [median(times[case]) for times in timed]
    full = [median(times[FULL]) for times in timed]
    return {
        "ttft_s": median(ours),
        "ttft_speedup": median(baseline / own for baseline, own in zip(full, ours, strict=True)),
    }
