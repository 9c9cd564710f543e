"""From questions and documents to prompts of cached chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.prompt import PromptTemplate
from benchmarks.data import Dataset, Question
from benchmarks.quality.pool import Pool, ordered
from ragcache.errors import ConfigError
from ragcache.types import Chunk, Segment
from splitter.base import Embed, Piece, Splitter


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

    def groups(self, dataset: Dataset) -> Iterator[Group]:
        """One by one, each made when it is asked for."""
        for name, text in dataset.corpora.items():
            questions = [question for question in dataset.questions if question.corpus == name]
            if questions:
                yield self._retrieved(text, questions)
        given = [question for question in dataset.questions if question.contexts]
        if self.pool is None:
            yield from map(self._given, given)
        elif given:
            yield self._pooled(self.pool, given)

    def dropped(self, question: Question) -> int:
        """How many of its passages, from the end, do not fit into a prompt."""
        if self.pool is not None:
            return 0
        documents = [self._passage(context) for context in question.contexts]
        return len(documents) - len(self._fitting(question, documents))

    def cuts(self, question: Question) -> bool:
        """Whether the splitter has a say in its prompt."""
        return (
            not question.contexts
            or self.pool is not None
            or any(len(self.even.split(context)) > 1 for context in question.contexts)
        )

    def _passage(self, text: str) -> tuple[Chunk, ...]:
        """Whole where it may be: it was cut already, by whoever prepared it."""
        whole = self.even.split(text)
        return self._chunks(text, whole if len(whole) == 1 else self.splitter.split(text))

    def _chunks(self, text: str, pieces: Sequence[Piece]) -> tuple[Chunk, ...]:
        return tuple(self.template.chunk(text[piece.start : piece.end]) for piece in pieces)

    def _given(self, question: Question) -> Group:
        """The passages that the question comes with, each a document of its own."""
        documents = self._fitting(question, [self._passage(context) for context in question.contexts])
        if not documents:
            raise ConfigError(f"question {question.name}: not one of its passages fits into the model's context")
        chunks = tuple(chunk for document in documents for chunk in document)
        return Group(tuple(documents), (self._prompt(question, chunks),))

    def _pooled(self, pool: Pool, questions: Sequence[Question]) -> Group:
        """Retrieved from all passages of all questions, of those that are not asked too."""
        scores = self.embed([question.text for question in questions]) @ pool.vectors.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k].tolist()  # [questions, top_k]
        chunks = {one: self.template.chunk(pool.texts[one]) for row in best for one in row}
        runs = pool.arrangement.runs(chunks)
        chunks |= {one: self.template.chunk(pool.texts[one]) for run in runs for one in run if one not in chunks}
        prompts = tuple(
            self._prompt(question, tuple(chunks[one] for one in pool.ordered(row, self.order, question.text)))
            for question, row in zip(questions, best, strict=True)
        )
        return Group(tuple(tuple(chunks[one] for one in run) for run in runs), prompts)

    def _fitting(self, question: Question, documents: Sequence[tuple[Chunk, ...]]) -> list[tuple[Chunk, ...]]:
        used = len(self.template.system()) + len(self.template.question(question.text))
        kept: list[tuple[Chunk, ...]] = []
        for document in documents:
            used += sum(len(chunk) for chunk in document)
            if used > self.room:
                break
            kept.append(document)
        return kept

    def _retrieved(self, text: str, questions: Sequence[Question]) -> Group:
        """The passages of the corpus that are nearest to each question, best first or as they stand in it."""
        pieces = self.splitter.split(text, "markdown")  # as corpora are, by their names
        chunks = self._chunks(text, pieces)
        vectors = self.embed([piece.embedded(text) for piece in pieces])  # [pieces, dimension]
        scores = self.embed([question.text for question in questions]) @ vectors.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]  # [questions, top_k]
        places = range(len(chunks))  # of a document that is the collection
        prompts = (
            self._prompt(question, tuple(chunks[one] for one in ordered(row, self.order, places, question.text)))
            for question, row in zip(questions, best.tolist(), strict=True)
        )
        return Group((chunks,), tuple(prompts))

    def _prompt(self, question: Question, chunks: tuple[Chunk, ...]) -> Prompt:
        segments = (self.template.system(), *chunks, self.template.question(question.text))
        return Prompt(question.name, question.answers, chunks, segments)
