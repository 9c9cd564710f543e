"""What is asked, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from app.answering.citations import Citation
from ragcache.errors import ConfigError
from ragcache.report import COMPUTED, Report

if TYPE_CHECKING:
    from app.prompt import Turn
    from ragcache.engine import Sampling

Where = Mapping[str, Sequence[int | str]]


class AskOptions(TypedDict, total=False):
    """For callers; each is explained at Asked."""

    collection: str | None
    top_k: int | None
    where: Where | None
    max_tokens: int | None
    linker: str | None
    sampling: Sampling | None
    history: Sequence[Turn]
    quotes: bool


@dataclass(frozen=True)
class Asked:
    """What is None is as in the settings. An unknown name raises TypeError."""

    collection: str | None = None
    top_k: int | None = None
    where: Where | None = None  # {"document": ids or sources, "source": …, "kind": …}: only chunks of these
    max_tokens: int | None = None
    linker: str | None = None  # "full" uses no cache
    sampling: Sampling | None = None  # greedy when None
    history: Sequence[Turn] = ()  # earlier questions with their answers; a Conversation keeps its own
    quotes: bool = True  # whether each citation shall name its best sentence

    def __post_init__(self) -> None:
        for name in ("top_k", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: ask for at least 1")


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
