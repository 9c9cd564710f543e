"""From questions and documents to prompts of cached chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.prompt import PromptTemplate
from benchmarks.data import Dataset, Question
from benchmarks.quality.material import Material, PromptDraft
from benchmarks.quality.pool import Pool, ordered
from ragcache.errors import ConfigError
from ragcache.types import Chunk, Segment
from splitter.base import Embed, Splitter


@dataclass(frozen=True)
class Prompt:
    """One question and its chunks, in prompt order."""

    name: str
    answers: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Group:
    """Prompts that share documents, so that a group's KV is all that has to be kept at a time."""

    documents: tuple[tuple[Chunk, ...], ...]  # each whole, in its order
    prompts: tuple[Prompt, ...]
    revised: tuple[tuple[Chunk, Chunk], ...] = ()  # a chunk of a document, and one that would stand in its place


@dataclass(frozen=True)
class PromptBuilder:
    """By one splitter. Those of several give the same questions in the same groups."""

    template: PromptTemplate
    embed: Embed
    splitter: Splitter
    even: Splitter  # tells the passages that are longer than a chunk may be
    top_k: int
    room: int  # tokens that a prompt may have
    order: str  # of retrieved chunks: one of ORDERS
    pool: Pool | None = None
    shape: Callable[[Material], Material] = field(default=lambda material: material)

    def groups(self, dataset: Dataset) -> Iterator[Group]:
        """One by one, each made when it is asked for."""
        for name, text in dataset.corpora.items():
            questions = [question for question in dataset.questions if question.corpus == name]
            if questions:
                yield self._group(self._retrieved(text, questions))
        given = [question for question in dataset.questions if question.contexts]
        if self.pool is None:
            yield from map(self._given, given)
        elif given:
            yield self._group(self._pooled(self.pool, given))

    def dropped(self, question: Question) -> int:
        """How many of its passages, from the end, do not fit into a prompt."""
        if self.pool is not None or not question.contexts:
            return 0
        group = self._fitting(question)
        return len(question.contexts) - (len(group.documents) if group else 0)

    def cuts(self, question: Question) -> bool:
        """Whether the splitter has a say in its prompt."""
        return (
            not question.contexts
            or self.pool is not None
            or any(len(self.even.split(context)) > 1 for context in question.contexts)
        )

    def _given(self, question: Question) -> Group:
        group = self._fitting(question)
        if group is None:
            raise ConfigError(f"question {question.name}: not one of its passages fits into the model's context")
        return group

    def _fitting(self, question: Question) -> Group | None:
        """The passages that the question comes with, each a document of its own, from the first as far as they fit."""
        documents = [self._passage(context) for context in question.contexts]
        for count in range(len(documents), 0, -1):
            group = self._group(Material.given(question, documents[:count]))
            if sum(len(segment) for segment in group.prompts[0].segments) <= self.room:
                return group
        return None

    def _passage(self, text: str) -> list[str]:
        """Whole where it may be: it was cut already, by whoever prepared it."""
        whole = self.even.split(text)
        pieces = whole if len(whole) == 1 else self.splitter.split(text)
        return [text[piece.start : piece.end] for piece in pieces]

    def _pooled(self, pool: Pool, questions: Sequence[Question]) -> Material:
        """Retrieved from all passages of all questions, of those that are not asked too."""
        scores = self.embed([question.text for question in questions]) @ pool.vectors.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k].tolist()  # [questions, top_k]
        runs = pool.arrangement.runs({one for row in best for one in row})
        drafts = tuple(
            PromptDraft(question, tuple(pool.ordered(row, self.order, question.text)))
            for question, row in zip(questions, best, strict=True)
        )
        return Material({one: pool.texts[one] for run in runs for one in run}, tuple(runs), drafts)

    def _retrieved(self, text: str, questions: Sequence[Question]) -> Material:
        """The passages of the corpus that are nearest to each question, best first or as they stand in it."""
        pieces = self.splitter.split(text, "markdown")  # as corpora are, by their names
        vectors = self.embed([piece.embedded(text) for piece in pieces])  # [pieces, dimension]
        scores = self.embed([question.text for question in questions]) @ vectors.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]  # [questions, top_k]
        places = range(len(pieces))  # of a document that is the collection
        drafts = tuple(
            PromptDraft(question, tuple(ordered(row, self.order, places, question.text)))
            for question, row in zip(questions, best.tolist(), strict=True)
        )
        texts = {number: text[piece.start : piece.end] for number, piece in enumerate(pieces)}
        return Material(texts, (tuple(places),), drafts)

    def _group(self, material: Material) -> Group:
        """In the shape that is asked for, tokenised."""
        made = self.shape(material)
        chunks = {number: self.template.chunk(text) for number, text in made.texts.items()}
        documents = tuple(tuple(chunks[number] for number in document) for document in made.documents)
        revised = tuple((chunks[other], chunks[number]) for number, other in made.revised.items())
        return Group(documents, tuple(self._prompt(draft, chunks) for draft in made.prompts), revised)

    def _prompt(self, draft: PromptDraft, by_number: Mapping[int, Chunk]) -> Prompt:
        question, chunks = draft.question, tuple(by_number[number] for number in draft.passages)
        segments = (self.template.system(), *chunks, self.template.question(question.text))
        return Prompt(question.name, question.answers, chunks, segments)
