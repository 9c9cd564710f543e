"""Texts and chunks for benchmarks of time, where the words do not matter."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.prompt import PromptTemplate
from app.samples import read_samples
from benchmarks.data import read_dataset
from ragcache.errors import ConfigError
from ragcache.types import Chunk
from splitter import make_splitter
from splitter.base import ChunkLimits, Embed, Splitter

if TYPE_CHECKING:
    from app.models.loading import LoadedModel


QUESTION = "What do these passages have in common?"
CONTEXT = "document"  # of choices.CONTEXTS


def read_texts(data: Path | None) -> list[str]:
    """The documents of a data set, or the samples."""
    if data is None:
        return list(read_samples().values())
    dataset = read_dataset(data)
    return [*dataset.corpora.values(), *(text for question in dataset.questions for text in question.contexts)]


def sized_splitter(
    template: PromptTemplate, chunk_tokens: int, name: str = "fixed", boundaries: Embed | None = None
) -> Splitter:
    """As documents that are ingested are cut. `boundaries`: by what it finds where meaning turns."""
    limits = ChunkLimits(min(ChunkLimits.min_tokens, chunk_tokens // 2), chunk_tokens)
    return make_splitter(name, template.tokens, boundaries, limits)


def split_documents(template: PromptTemplate, texts: Sequence[str], chunk_tokens: int) -> list[list[Chunk]]:
    splitter = sized_splitter(template, chunk_tokens)
    return [[template.chunk(text[piece.start : piece.end]) for piece in splitter.split(text)] for text in texts]


def shuffled(chunks: Sequence[Chunk], seed: int) -> Iterator[Chunk]:
    """Without end: when all are used up they come again in another order."""
    source = random.Random(seed)
    while True:
        yield from source.sample(chunks, len(chunks))


def fill(chunks: Iterator[Chunk], tokens: int) -> list[Chunk]:
    """Chunks of exactly so many tokens together: the last one is cut."""
    if tokens < 1:
        raise ConfigError("the System segment and the question alone are longer than that: ask for more --tokens")
    filled: list[Chunk] = []
    while tokens:
        chunk = next(chunks)
        filled.append(chunk if len(chunk) <= tokens else Chunk(chunk.ids[:tokens]))
        tokens -= len(filled[-1])
    return filled


def prompt_chunks(
    template: PromptTemplate, documents: Sequence[Sequence[Chunk]], tokens: int, question: str, seed: int
) -> list[Chunk]:
    """Chunks by lot that, between the System segment and the question, make a prompt of exactly so many tokens."""
    others = len(template.system()) + len(template.question(question))
    return fill(shuffled([chunk for document in documents for chunk in document], seed), tokens - others)


def check_room(parts: LoadedModel, tokens: int) -> None:
    if tokens >= parts.engine.spec.max_tokens:
        raise ConfigError(f"--tokens {tokens}: the model's context has {parts.engine.spec.max_tokens}")


def holding(documents: Iterable[Sequence[Chunk]], chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    """Documents that hold chunks of a prompt, and what was cut to fill it by itself."""
    wanted = {chunk.hash for chunk in chunks}
    return with_cut((document for document in documents if wanted & {chunk.hash for chunk in document}), chunks)


def with_cut(documents: Iterable[Sequence[Chunk]], chunks: Iterable[Chunk]) -> list[Sequence[Chunk]]:
    """The documents, and each of the chunks that is in none of them, cut as it was to fill a prompt, as its own."""
    found = list(documents)
    whole = {chunk.hash for document in found for chunk in document}
    return [*found, *([chunk] for chunk in chunks if chunk.hash not in whole)]
