"""From questions and documents to prompts of cached chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.prompt import PromptTemplate
from benchmarks.corpus import passages
from benchmarks.data import Dataset, Question
from ragcache.errors import ConfigError
from ragcache.types import Chunk, Segment
from retriever import Vectors

logger = logging.getLogger(__name__)
Embed = Callable[[Sequence[str]], Vectors]


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
    template: PromptTemplate
    embed: Embed
    top_k: int
    chunk_tokens: int
    room: int  # tokens that a prompt may have
    order: str  # of retrieved chunks: one of ORDERS

    def groups(self, dataset: Dataset) -> Iterator[Group]:
        """One by one, each made when it is asked for."""
        for name, text in dataset.corpora.items():
            questions = [question for question in dataset.questions if question.corpus == name]
            if questions:
                yield self._retrieved(text, questions)
        yield from (self._given(question) for question in dataset.questions if question.contexts)

    def dropped(self, question: Question) -> int:
        """How many of its passages, from the end, do not fit into a prompt."""
        documents = [self._split(context)[1] for context in question.contexts]
        return len(documents) - len(self._fitting(question, documents))

    def _split(self, text: str) -> tuple[list[str], tuple[Chunk, ...]]:
        found = passages(self.template, text, self.chunk_tokens)
        return found, tuple(self.template.chunk(passage) for passage in found)

    def _given(self, question: Question) -> Group:
        """The passages that the question comes with, each a document of its own."""
        documents = self._fitting(question, [self._split(context)[1] for context in question.contexts])
        if not documents:
            raise ConfigError(f"question {question.name}: not one of its passages fits into the model's context")
        chunks = tuple(chunk for document in documents for chunk in document)
        return Group(tuple(documents), (self._prompt(question, chunks),))

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
        found, chunks = self._split(text)
        scores = self.embed([question.text for question in questions]) @ self.embed(found).T
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]  # [questions, top_k]
        if self.order == "document":
            best = np.sort(best, axis=1)
        prompts = (
            self._prompt(question, tuple(chunks[place] for place in row))
            for question, row in zip(questions, best, strict=True)
        )
        return Group((chunks,), tuple(prompts))

    def _prompt(self, question: Question, chunks: tuple[Chunk, ...]) -> Prompt:
        segments = (self.template.system(), *chunks, self.template.question(question.text))
        return Prompt(question.name, question.answers, chunks, segments)
