"""What a follow-up is searched by, since it may name nothing that it asks about.

The question itself is always whole. What stands in front of it gets the room that the embedder has left, since that
cuts off no question then, and the nearest words are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.prompt import PromptTemplate, Turn
    from ragcache.cache import ChunkCache

JOINED = 2  # earlier questions; what was asked before these is seldom still meant
WORD = re.compile(r"\S+")
REWRITTEN_FROM = 3  # turns
LONGEST = 64  # tokens of a rewritten question
INSTRUCTION = (
    "Do not answer. Write this question again as one that can be understood without the conversation, with the names "
    "that it refers to: {question}"
)
Model = Callable[[], "tuple[PromptTemplate, ChunkCache]"]
Fits = Callable[[str], bool]  # whether the search reads all of a text at once
Condense = Callable[[Sequence["Turn"], str, Model, Fits], str]


def off(history: Sequence[Turn], question: str, model: Model, fits: Fits) -> str:
    return question


def join(history: Sequence[Turn], question: str, model: Model, fits: Fits) -> str:
    """The last questions and this one. Answers stay out: what they got wrong would be searched for."""
    return _in_front([asked for asked, _ in history[-JOINED:]], question, fits)


def rewrite(history: Sequence[Turn], question: str, model: Model, fits: Fits) -> str:
    """By the language model, behind System, whose KV is stored.

    Searched for beside the question itself: a small model may answer instead, which still names what is meant.
    """
    template, cache = model()
    text = template.turns(history[-REWRITTEN_FROM:], INSTRUCTION.format(question=question), passages=False)
    if len(template.system()) + len(text) + LONGEST > cache.engine.spec.max_tokens:
        return join(history, question, model, fits)
    generation = cache.generate([template.system(), text], max_tokens=LONGEST, stop=template.stop)
    lines = template.decode(list(generation)).strip().splitlines()
    return _in_front(lines[:1], question, fits)


CONDENSE: Mapping[str, Condense] = {"join": join, "model": rewrite, "off": off}


def condensed(name: str, history: Sequence[Turn], question: str, model: Model, fits: Fits) -> str:
    """A question with nothing before it stays as it is."""
    return CONDENSE[name](history, question, model, fits) if history else question


def _in_front(lines: Sequence[str], question: str, fits: Fits) -> str:
    """The question behind as many of the last words of the lines as fit with it."""
    whole = "\n".join([*lines, question])
    if fits(whole):
        return whole
    words = [*WORD.finditer(front := "\n".join(lines))]
    # From the first word on nothing fits, and without any there is the question alone.
    left = bisect_left(range(len(words)), True, key=lambda word: fits(f"{front[words[word].start() :]}\n{question}"))
    return f"{front[words[left].start() :]}\n{question}" if left < len(words) else question
