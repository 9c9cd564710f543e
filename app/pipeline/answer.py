"""An answer, with what it cites and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.citations import Citation
from ragcache.report import COMPUTED, Report


@dataclass(frozen=True)
class Answer:
    """`notes` say what a user should know of it: what was left out of the prompt, or that it was stopped."""

    question: str
    text: str
    citations: tuple[Citation, ...]
    report: Report
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "question": self.question,
            "answer": self.text,
            "citations": [citation.to_dict() for citation in self.citations],
            "report": self.report.to_dict(),
            "notes": list(self.notes),
        }


def told(report: Report, without: Report | None = None) -> str:
    """A report in a line; `without` is that of the same prompt with no cache, if it was measured."""
    tokens = sum(chunk.tokens for chunk in report.chunks)
    tiers: dict[str, int] = {}
    for chunk in report.chunks:
        tiers[chunk.tier] = tiers.get(chunk.tier, 0) + 1
    where = [
        f"{count}/{len(report.chunks)} chunks {tier if tier == COMPUTED else f'from {tier}'}"
        for tier, count in sorted(tiers.items(), key=lambda found: -found[1])
    ]
    measured = f" (without cache {without.ttft_s:.2f} s, measured)" if without else ""
    repaired = [f"{report.repaired / tokens:.0%} repaired".replace("%", " %")] if tokens else ["no chunks"]
    return " · ".join([f"first token {report.ttft_s:.2f} s{measured}", *where, *repaired])
