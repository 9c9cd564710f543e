"""What a follow-up question is searched by: it may name nothing that it asks about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.prompt import PromptTemplate, Turn
    from ragcache.base import PromptCache

JOINED = 2  # earlier questions; what was asked before these is seldom still meant
REWRITTEN_FROM = 3  # turns
LONGEST = 64  # tokens of a rewritten question
INSTRUCTION = (
    "Do not answer. Write this question again as one that can be understood without the conversation, with the names "
    "that it refers to: {question}"
)

Model = Callable[[], "tuple[PromptTemplate, PromptCache]"]
Condense = Callable[[Sequence["Turn"], str, Model], str]


def off(history: Sequence[Turn], question: str, model: Model) -> str:
    return question


def join(history: Sequence[Turn], question: str, model: Model) -> str:
    """The last questions and this one. Answers stay out: what they got wrong would be searched for."""
    return "\n".join([*(asked for asked, _ in history[-JOINED:]), question])


def rewrite(history: Sequence[Turn], question: str, model: Model) -> str:
    """By the language model, behind System, whose KV is stored.

    Searched for beside the question itself: a small model may answer instead, which still names what is meant.
    """
    template, cache = model()
    text = template.turns(history[-REWRITTEN_FROM:], INSTRUCTION.format(question=question), passages=False)
    if len(template.system()) + len(text) + LONGEST > cache.engine.spec.max_tokens:
        return join(history, question, model)
    generation = cache.generate([template.system(), text], max_tokens=LONGEST, stop=template.stop)
    lines = template.decode(list(generation)).strip().splitlines()
    return "\n".join([*lines[:1], question])


CONDENSE: Mapping[str, Condense] = {"join": join, "model": rewrite, "off": off}


def condensed(name: str, history: Sequence[Turn], question: str, model: Model) -> str:
    """A question with nothing before it stays as it is."""
    return CONDENSE[name](history, question, model) if history else question
