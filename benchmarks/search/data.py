"""A collection that is large enough to be slow, and questions about it.

Chunks belong to topics, which are a few words each. A chunk repeats words of its topic among words that are drawn as
those of a language are, few of them often and most of them seldom, and its vector lies around that of its topic. Only
topics are embedded: 100,000 chunks would take an hour.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.library import Library
from app.library.catalog.records import ChunkRecord, Collection, DocumentRecord
from retriever import Vectors
from retriever.embedder import Embedder
from retriever.sentences import Packed, pack
from retriever.words import STOP_WORDS

WORDS = 135  # of a chunk
OF_TOPIC = 6  # words of a topic
REPEATED = 12  # words of a chunk that are its topic's
VOCABULARY = 50_000
TOPICS = 1000
SPREAD = 0.7  # of a chunk around its topic, which has length 1, and of a sentence around its chunk
SENTENCES = 8  # of a chunk
TOGETHER = 500  # chunks of a document


@dataclass(frozen=True)
class Topics:
    words: Sequence[str]  # the most frequent first
    chosen: np.ndarray[tuple[int, ...], np.dtype[np.int64]]  # [topics, words of each], places in `words`
    vectors: Vectors  # [topics, dimension]
    seed: int

    @classmethod
    def of(cls, texts: Sequence[str], embedder: Embedder, seed: int) -> Topics:
        words = vocabulary(texts, VOCABULARY)
        rare = [place for place, word in enumerate(words[: len(words) // 4]) if word not in STOP_WORDS]
        random = np.random.default_rng((seed, 0))
        chosen = random.choice(np.array(rare, dtype=np.int64), (TOPICS, OF_TOPIC))
        return cls(words, chosen, embedder.embed([_sentence(words, row) for row in chosen]), seed)

    def chunks(self, number: int, count: int) -> Iterator[tuple[str, Vectors, Packed]]:
        """Texts with their vectors and those of their sentences; the same for the same number."""
        random = np.random.default_rng((self.seed, 1, number))
        topics = random.integers(len(self.chosen), size=count)
        ranks = np.searchsorted(self._reached, random.random((count, WORDS)))
        for at in range(REPEATED):
            ranks[:, random.integers(WORDS)] = self.chosen[topics, at % OF_TOPIC]
        vectors = _around(self.vectors[topics], random)
        sentences = _around(np.repeat(vectors, SENTENCES, axis=0), random).reshape(count, SENTENCES, -1)
        for row, vector, of_chunk in zip(ranks, vectors, sentences, strict=True):
            yield " ".join(self.words[place] for place in row), vector, pack(of_chunk)

    @cached_property
    def _reached(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Up to which number between 0 and 1 each word reaches: the one at rank r is drawn as often as 1 / r."""
        weights = 1 / np.arange(3, len(self.words) + 3)
        reached: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.cumsum(weights) / weights.sum()
        reached[-1] = 1.0
        return reached

    def questions(self, count: int) -> list[str]:
        """Each of one topic."""
        random = np.random.default_rng((self.seed, 2))
        asked = self.chosen[random.integers(len(self.chosen), size=count)]
        return [f"What is known about the {self.words[row[0]]} and the {self.words[row[1]]}?" for row in asked]


def vocabulary(texts: Sequence[str], count: int) -> list[str]:
    """The words of the texts, the most frequent first, and then as many compounds of two as are missing."""
    counts = Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
    words = [word for word, _ in counts.most_common()]
    long = [word for word in words if len(word) > 3 and word not in STOP_WORDS]
    compounds = (first + second for second in long for first in long)
    known = dict.fromkeys(words)
    while len(known) < count and (word := next(compounds, None)) is not None:
        known[word] = None
    return list(known)[:count]


def fill(library: Library, collection: Collection, topics: Topics, chunks: int) -> Iterator[int]:
    """Documents with so many chunks together; yields how many are in. Their ids of tokens are made up."""
    for start in range(0, chunks, TOGETHER):
        made = list(topics.chunks(start, min(TOGETHER, chunks - start)))
        records, at = [], 0
        for number, (text, vector, sentences) in enumerate(made, start):
            records.append(ChunkRecord(at, at + len(text), text, WORDS, f"{number:064x}", vector, sentences=sentences))
            at += len(text) + 1
        text = " ".join(text for text, _, _ in made)
        record = DocumentRecord(f"synthetic/{start}.txt", f"{start:064x}", len(text), 0, "text", f"{start}", text)
        library.catalog.documents.replace(collection, record, records)
        yield start + len(made)


def _around(centres: Vectors, random: np.random.Generator) -> Vectors:
    noise = random.standard_normal(centres.shape, dtype=np.float32)
    vectors = centres + noise * np.float32(SPREAD / centres.shape[1] ** 0.5)
    around: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return around


def _sentence(words: Sequence[str], places: Sequence[int]) -> str:
    return " ".join(words[place] for place in places)
