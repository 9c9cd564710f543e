"""The slim bar under an answer: where its chunks came from, and where the first word's time went.

Nothing is told that was not measured: what a server leaves out is not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.client.amounts import count
from app.client.answers import places
from ui.markup import escape

Values = Mapping[str, Any]
# By tier: what people read, and why a chunk comes from there.
TIERS = {
    "prefix": ("prefix cache", "The prompt began as an earlier one did"),
    "ram": ("RAM", "Its KV was in memory"),
    "disk": ("disk", "Its KV was read from the disk: memory did not hold it"),
    "bucket": ("object store", "Its KV was brought from the object store: this machine did not hold it"),
    "computed": ("computed", "No tier had KV of it that serves here, so the model computed it"),
}
PASSED = "Its KV was there, but to compute it was sooner than to bring it"
OTHER_SYSTEM = "it was computed behind another system prompt"
EXACT = "it stood as it had been computed, so nothing had to be repaired"
# In the order of time.
STAGES = {
    "condense": "follow-up understood",
    "retrieve": "passages found",
    "plan": "planned",
    "load": "KV loaded",
    "place": "KV placed",
    "link": "KV repaired, question read",
}
REST = "all else"
SHOWN_S, PART = 0.0005, 0.005  # a stage that took less is not told; one of a smaller share has no segment
OVERLAPPING = 1.02  # stages that come to more than the whole were beside each other


def bar(report: Values, citations: Sequence[Values] = ()) -> str:
    """As HTML; nothing where nothing was measured. `citations` name the documents of the chunks, in their order."""
    chunks = [one for one in report.get("chunks") or () if _count(one.get("tokens"))]
    first = _seconds(report.get("ttft_s"))
    if not chunks or not first:
        return ""
    names = places(citations) if len(citations) == len(chunks) else []
    total = sum(one["tokens"] for one in chunks)
    parts = "".join(_part(one, total, names[at] if names else f"Passage {at + 1}") for at, one in enumerate(chunks))
    segments = f'<div class="rc-bar" role="img" aria-label="{_spoken(chunks)}">{parts}</div>'
    told = [f"first word after {_told(first)}", *_legend(chunks), *_tokens(chunks, total)]
    line = "".join(f"<span>{one}</span>" for one in told)
    return f'<div class="rc-report">{segments}{_times(report, first, line)}</div>'


# -- chunks -----------------------------------------------------------------------------------------------------------


def _part(chunk: Values, total: int, name: str) -> str:
    tier, tokens = str(chunk.get("tier")), int(chunk["tokens"])
    counts = [f"{tokens:,} tokens"]
    counts += [f"{_count(chunk.get(what)):,} {what}" for what in ("reused", "repaired", "computed") if chunk.get(what)]
    told = f"{name}\n{_name(tier)}: {', '.join(counts)}\n{_why(chunk)}"
    style = f"flex-grow:{tokens / total:.4f}"
    return f'<span class="rc-tier rc-tier-{_known(tier)}" style="{style}" title="{escape(told)}"></span>'


def _why(chunk: Values) -> str:
    tier = str(chunk.get("tier"))
    if tier == "computed" and chunk.get("passed") is True:
        return PASSED
    why = TIERS.get(tier, ("", ""))[1]
    more = [OTHER_SYSTEM] if chunk.get("system") == "other" else []
    more += [EXACT] if tier != "computed" and chunk.get("exact") is True else []
    return "; ".join([why, *more]) if why else ""


def _legend(chunks: Sequence[Values]) -> list[str]:
    counted = Counter(str(one.get("tier")) for one in chunks)
    return [
        f'<i class="rc-tier rc-tier-{_known(tier)}"></i>{count(n, "passage")}: {escape(_name(tier))}'
        for tier, n in counted.most_common()
    ]


def _tokens(chunks: Sequence[Values], total: int) -> list[str]:
    sums = {what: sum(_count(one.get(what)) for one in chunks) for what in ("reused", "repaired", "computed")}
    told = ", ".join(f"{n:,} {what}" for what, n in sums.items() if n)
    return [f"of {total:,} tokens {told}"] if told else []


def _spoken(chunks: Sequence[Values]) -> str:
    counted = Counter(_name(str(one.get("tier"))) for one in chunks)
    return escape("Passages by source: " + ", ".join(f"{n} {name}" for name, n in counted.most_common()))


def _known(tier: str) -> str:
    return tier if tier in TIERS else "other"


def _name(tier: str) -> str:
    return TIERS.get(tier, (tier, ""))[0]


# -- time -------------------------------------------------------------------------------------------------------------


def _times(report: Values, first: float, line: str) -> str:
    stages = _stages(report, first)
    if not stages:
        return f'<div class="rc-report-line">{line}</div>'
    parts = "".join(_stage(at, name, value, first) for at, (name, value) in enumerate(stages))
    whole = sum(value for _, value in stages)
    segments = (
        f'<div class="rc-bar rc-bar-time" aria-hidden="true">{parts}</div>' if whole <= OVERLAPPING * first else ""
    )
    rows = "".join(
        f'<tr><th scope="row"><i class="rc-stage rc-stage-{at % 4}"></i>{escape(name)}</th><td>{_told(value)}</td></tr>'
        for at, (name, value) in enumerate(stages)
    )
    total = f'<tr><th scope="row">first word</th><td>{_told(first)}</td></tr>'
    return (
        f'<details><summary class="rc-report-line">{line}</summary><div class="rc-times">{segments}'
        f"<table>{rows}{total}</table></div></details>"
    )


def _stages(report: Values, first: float) -> list[tuple[str, float]]:
    seconds = report.get("seconds")
    measured = seconds if isinstance(seconds, Mapping) else {}
    found = [(told, value) for name, told in STAGES.items() if (value := _seconds(measured.get(name))) >= SHOWN_S]
    rest = first - sum(value for _, value in found)
    return [*found, (REST, rest)] if found and rest >= SHOWN_S else found


def _stage(at: int, name: str, value: float, whole: float) -> str:
    if value < PART * whole:
        return ""
    told = escape(f"{name}: {_told(value)}")
    return f'<span class="rc-stage rc-stage-{at % 4}" style="flex-grow:{value / whole:.4f}" title="{told}"></span>'


def _told(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:,.0f} ms"


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e6 else 0.0


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
