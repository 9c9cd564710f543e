"""Chunks for the tests of the indexes, and what a slow, obvious search finds among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from retriever import IntArray, Vectors
from retriever.memory_source import MemorySource
from retriever.words import asked_words, words

DIMENSION = 16


def unit(count: int, seed: int = 0, dimension: int = DIMENSION) -> Vectors:
    """Random vectors of length 1."""
    vectors = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def source_of(count: int, seed: int = 0) -> MemorySource:
    source = MemorySource(DIMENSION)
    grow(source, count, seed)
    return source


def grow(source: MemorySource, count: int, seed: int = 0) -> IntArray:
    texts = [f"chunk number{number} of seed{seed} group{number % 7}" for number in range(count)]
    return source.add(texts, unit(count, seed), [{"group": number % 7} for number in range(count)])


def brute_force(ids: IntArray, vectors: Vectors, query: Vectors, k: int) -> list[int]:
    """Ids of the k best by cosine, by comparing with each."""
    scores = vectors @ query
    return [int(number) for number in ids[np.lexsort((ids, -scores))[:k]]]


def slow_bm25(texts: Mapping[int, str], question: str, k: int) -> list[tuple[int, float]]:
    """BM25 as it is written in the textbook: every chunk, word by word."""
    k1, b = 1.2, 0.75
    split = {number: words(text) for number, text in texts.items()}
    mean = sum(map(len, split.values())) / max(len(split), 1)
    scores: dict[int, float] = {}
    for word in asked_words(question):
        holding = sum(word in chunk for chunk in split.values())
        idf = math.log(1 + (len(split) - holding + 0.5) / (holding + 0.5))
        for number, chunk in split.items():
            times = chunk.count(word)
            if times:
                part = idf * times * (k1 + 1) / (times + k1 * (1 - b + b * len(chunk) / mean))
                scores[number] = scores.get(number, 0.0) + part
    ranked = sorted(scores.items(), key=lambda one: (-round(one[1], 9), one[0]))
    return ranked[:k]


def found(ids: IntArray) -> list[int]:
    """One query's ids without the marks for what is missing."""
    return [int(number) for number in np.ravel(ids) if number >= 0]


def recall(ids: Sequence[int], truth: Sequence[int]) -> float:
    return len(set(ids) & set(truth)) / len(truth)
