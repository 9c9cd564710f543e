"""The slim bar under an answer: where its chunks came from, and where the first token's time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ui.markup import escape

# By tier: what people read, and why a chunk comes from there.
TIERS = {
    "device": ("device", "its KV was on the device already"),
    "prefix": ("prefix cache", "the prompt began as an earlier one did"),
    "ram": ("RAM", "its KV was in memory"),
    "disk": ("disk", "its KV was read from the disk"),
    "remote": ("object store", "its KV was brought from the object store"),
    "computed": ("computed", "no KV of it was kept, so the model computed it"),
}
STAGES = {
    "condense": "follow-up understood",
    "retrieve": "passages found",
    "plan": "planned",
    "load": "KV loaded",
    "place": "KV placed",
    "link": "KV repaired",
}
Report = Mapping[str, Any]


def bar(report: Report) -> str:
    """Nothing where nothing was measured."""
    chunks = [one for one in report.get("chunks") or () if isinstance(one.get("tokens"), int) and one["tokens"] > 0]
    first = report.get("ttft_s")
    if not chunks or not isinstance(first, int | float):
        return ""
    total = sum(one["tokens"] for one in chunks)
    parts = "".join(_part(one, total, place) for place, one in enumerate(chunks, 1))
    repaired = sum(int(one.get("repaired") or 0) for one in chunks)
    told = [f"first word {first:.2f} s", *_counts(chunks), f"{repaired:,} of {total:,} tokens repaired"]
    line = "".join(f"<span>{one}</span>" for one in told)
    segments = f'<div class="rc-bar" role="img" aria-label="{_spoken(chunks)}">{parts}</div>'
    return f'<div class="rc-report">{segments}{_times(report, line)}</div>'


def _part(chunk: Mapping[str, Any], total: int, place: int) -> str:
    tier, tokens = str(chunk.get("tier")), int(chunk["tokens"])
    name, why = TIERS.get(tier, (tier, ""))
    repaired = int(chunk.get("repaired") or 0)
    kept = 0 if tier == "computed" else tokens - repaired
    about = f"Passage {place}, {name}: {tokens:,} tokens, {kept:,} reused, {repaired:,} repaired"
    if tier == "computed":
        about = f"Passage {place}, computed: {tokens:,} tokens"
    style = f"flex-grow:{tokens / total:.4f}"
    return f'<span class="rc-tier rc-tier-{_known(tier)}" style="{style}" title="{escape(f"{about}. {why}")}"></span>'


def _counts(chunks: list[Mapping[str, Any]]) -> list[str]:
    counted = Counter(str(one.get("tier")) for one in chunks)
    return [
        f'<i class="rc-tier rc-tier-{_known(tier)}"></i>{n} {escape(_name(tier))}' for tier, n in counted.most_common()
    ]


def _known(tier: str) -> str:
    return tier if tier in TIERS else "other"


def _name(tier: str) -> str:
    return TIERS.get(tier, (tier, ""))[0]


def _spoken(chunks: list[Mapping[str, Any]]) -> str:
    names = [_name(str(one.get("tier"))) for one in chunks]
    return escape("Passages by source: " + ", ".join(names))


def _times(report: Report, line: str) -> str:
    seconds = report.get("seconds")
    measured = {
        name: float(value)
        for name, value in (seconds.items() if isinstance(seconds, Mapping) else ())
        if isinstance(value, int | float) and value >= 0.0005
    }
    if not measured:
        return f'<div class="rc-report-line">{line}</div>'
    told = "".join(
        f"<tr><th>{escape(STAGES.get(name, name))}</th><td>{value * 1000:,.0f} ms</td></tr>"
        for name, value in measured.items()
    )
    return f'<details><summary class="rc-report-line">{line}</summary><table class="rc-times">{told}</table></details>'
