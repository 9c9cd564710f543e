"""What of a prompt fits the model's context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragcache.errors import PromptError

if TYPE_CHECKING:
    from app.prompt import PromptTemplate, Turn


@dataclass(frozen=True)
class Fitted:
    """How many of the best chunks, and how many of the newest turns, are kept."""

    chunks: int
    turns: int
    notes: tuple[str, ...]


def fit(
    template: PromptTemplate,
    question: str,
    chunks: Sequence[int],
    history: Sequence[Turn],
    context: int,
    answer: int,
) -> Fitted:
    """`chunks` are lengths in tokens, best first. Raises PromptError for a question that does not fit alone.

    Chunks go before turns, the lowest-ranked first; but where a long conversation would leave no room for any, the
    oldest turns go as far as they take more than half of it.
    """
    # As without chunks, which takes a few tokens more: they may all have to go.
    fixed = len(template.system()) + len(template.turns((), question, passages=False))
    room = context - answer - fixed
    if room < 0:
        raise PromptError(
            f"the question is too long: with the system prompt it takes {fixed} tokens and the answer up to {answer}, "
            f"while the model's context has {context}: shorten it, or ask for fewer max_tokens"
        )
    kept, turns = list(chunks), [len(template.turn(turn)) for turn in history]
    while sum(turns) > room // 2 and sum(kept) + sum(turns) > room:
        turns.pop(0)
    while len(kept) > 1 and sum(kept) + sum(turns) > room:
        kept.pop()
    while turns and sum(kept) + sum(turns) > room:
        turns.pop(0)
    if sum(kept) > room:
        kept = []
    return Fitted(len(kept), len(turns), tuple(_notes(len(chunks), len(kept), len(history), len(turns), context)))


def _notes(chunks: int, kept: int, history: int, turns: int, context: int) -> list[str]:
    why = f"the prompt and the answer would not fit the model's context of {context} tokens"
    notes = []
    if kept < chunks:
        notes.append(f"the lowest-ranked {chunks - kept} of {chunks} chunks left out: {why}")
    if turns < history:
        notes.append(f"the oldest {history - turns} of {history} turns left out: {why}")
    return notes
