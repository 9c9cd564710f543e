"""Two runs of `ragcache bench quality` question by question: the same prompts and linkers in two engines or codecs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.output import Row
from benchmarks.quality import QUESTION
from benchmarks.quality.metrics import estimate
from ragcache.errors import ConfigError

Combination = tuple[str, str, str]  # splitter, linker and context
# What makes prompts and their chunks the same; the engine, the codec, rounding and times may differ.
SAME = (
    *("model", "fingerprint", "system", "embedder", "data"),
    *("seed", "limit", "max_tokens", "top_k", "order", "pool", "chunk_tokens", "shape"),
)


def compare(ours: Path, other: Path) -> list[Row]:
    """Raises ConfigError for runs that did not ask the same."""
    one, two = read_result(ours), read_result(other)
    for name in SAME:
        if one["settings"].get(name) != two["settings"].get(name):
            told = f"{name} is {one['settings'].get(name)!r} here and {two['settings'].get(name)!r} there"
            raise ConfigError(f"{other} cannot be compared with {ours}: {told}")
    left, right = _results(one), _results(two)
    linkers = two["settings"]["linkers"]
    cases = [case for case in left if case in right]
    same = [case for case in cases if linkers[case[1]] == one["settings"]["linkers"][case[1]]]
    if not same:
        told = "with the same settings, splitter and context"
        raise ConfigError(f"{other} has no linker of {ours} {told}: run it with the same")
    return [_row(case, left[case], right[case], one["settings"]["seed"]) for case in same]


def read_result(path: Path) -> dict[str, Any]:
    """Raises ConfigError for a file that is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = {"settings": dict(document["settings"]), "answers": dict(document["answers"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no result of `ragcache bench quality`: {error!r}") from error
    if "splitters" not in found["settings"]:
        raise ConfigError(f"{path} does not tell what cut its texts, as results do now: run it again")
    found["settings"].setdefault("shape", QUESTION)  # there was no other before results told theirs
    return found


def _results(document: Mapping[str, Any]) -> dict[Combination, dict[str, Any]]:
    """By splitter, linker and context, then by question."""
    found: dict[Combination, dict[str, Any]] = {}
    for name, record in document["answers"].items():
        for result in record["results"]:
            found.setdefault((result["splitter"], result["linker"], result["context"]), {})[name] = result
    return found


def _row(case: Combination, ours: Mapping[str, Any], other: Mapping[str, Any], seed: int) -> Row:
    names = sorted(ours.keys() & other.keys())
    differences = [ours[name]["kl"] - other[name]["kl"] for name in names]
    mean = estimate(differences, seed)

    def of(results: Mapping[str, Any], figure: str) -> float:
        return float(sum(results[name][figure] for name in names) / len(names))

    return {
        "splitter": case[0],
        "linker": case[1],
        "context": case[2],
        "kl": of(ours, "kl"),
        "other_kl": of(other, "kl"),
        "difference": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "furthest": max(differences, key=abs),
        "part": of(ours, "part"),
        "other_part": of(other, "part"),
        "n": len(names),
    }
