"""What prompts are made of, as texts: nothing is tokenised yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.data import Question


@dataclass(frozen=True)
class PromptDraft:
    question: Question
    passages: tuple[int, ...]  # in prompt order


@dataclass(frozen=True)
class Material:
    """Of prompts that share documents. Passages, which become chunks, go by number."""

    texts: Mapping[int, str]
    documents: tuple[tuple[int, ...], ...]  # each whole, in its order
    prompts: tuple[PromptDraft, ...]
    # Passages of one prompt each, which would stand in a document in the place of another: by number, that other's.
    revised: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def given(cls, question: Question, documents: Sequence[Sequence[str]]) -> Material:
        """The question's own passages, cut, all of them in its prompt."""
        texts = [text for document in documents for text in document]
        numbers = iter(range(len(texts)))
        numbered = tuple(tuple(next(numbers) for _ in document) for document in documents)
        return cls(dict(enumerate(texts)), numbered, (PromptDraft(question, tuple(range(len(texts)))),))
