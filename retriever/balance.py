"""How well meaning and words each tell the chunks of a collection apart, without a question that anybody asked: one
sentence of a chunk plays the question, and what is left of the chunk is to be found by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from retriever import FloatArray, Vectors
from retriever.keyword_index import KeywordIndex
from retriever.memory_source import MemorySource
from retriever.words import words

Scores = npt.NDArray[np.float64]
FEWEST_SENTENCES = 3  # of a chunk: one plays the question, and two are something to be found
FEWEST_WORDS = 6  # of a sentence that plays a question
FEWEST_CHUNKS = 20  # that say anything of their collection
EVEN = 1.3  # words over meaning, where both count alike: so it is on English texts, for which that was found best
LEAST_WEIGHT, MOST_WEIGHT = 0.5, 4.0  # of words against meaning: neither is ever silenced
EVEN_SHARE = 0.5  # where nothing can be learnt
# A question that no other chunk shares a word with is not infinitely clear.
LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class Withheld:
    """A chunk without one of its sentences, which plays a question."""

    question: str
    rest: str
    asked: Vectors  # the question's vector, [dimension]
    left: Vectors  # the direction of all other sentences together, of length 1, [dimension]


@dataclass(frozen=True)
class Balance:
    """By how many standard deviations a question's own chunk is above all others, in the mean over the questions."""

    chunks: int
    meaning: float
    words: float

    @property
    def enough(self) -> bool:
        return self.chunks >= FEWEST_CHUNKS

    @property
    def ratio(self) -> float | None:
        """Of words to meaning; None where it says nothing."""
        return self.words / self.meaning if self.meaning > 0 and self.words > 0 else None

    @property
    def vector_share(self) -> float:
        """What finds no chunk gets the least share that there is."""
        if not self.enough or (self.meaning <= 0 and self.words <= 0):
            return EVEN_SHARE
        if self.ratio is None:
            weight = MOST_WEIGHT if self.meaning <= 0 else LEAST_WEIGHT
        else:
            weight = min(max((self.ratio / EVEN) ** 2, LEAST_WEIGHT), MOST_WEIGHT)
        return 1 / (1 + weight)


def asking(sentences: Sequence[str]) -> list[int]:
    """Which of a chunk's sentences may play a question; none where too little would be left."""
    if len(sentences) < FEWEST_SENTENCES:
        return []
    return [place for place, one in enumerate(sentences) if len(words(one)) >= FEWEST_WORDS]


def withheld(sentences: Sequence[str], vectors: Vectors, chance: np.random.Generator) -> Withheld | None:
    """A chunk by its sentences and their vectors, [sentences, dimension]; None for one that is too short."""
    places = asking(sentences)
    if not places:
        return None
    chosen = places[int(chance.integers(len(places)))]
    left = vectors.sum(axis=0) - vectors[chosen]
    rest = "\n".join(one for place, one in enumerate(sentences) if place != chosen)
    return Withheld(sentences[chosen], rest, _unit(vectors[chosen]), _unit(left))


def balance(sample: Sequence[Withheld]) -> Balance:
    if len(sample) < 2:
        return Balance(len(sample), 0.0, 0.0)
    asked, left = np.stack([one.asked for one in sample]), np.stack([one.left for one in sample])
    return Balance(len(sample), separation((asked @ left.T).astype(np.float64)), separation(_covered(sample)))


def separation(scores: Scores) -> float:
    """Of [questions, chunks], each question's own chunk at its own place. 0 where there is none, and for no numbers."""
    own = np.diagonal(scores)
    others = scores[~np.eye(len(scores), dtype=bool)].reshape(len(scores), -1)
    spread = np.maximum(others.std(axis=1), LEAST_SPREAD)
    found = float(np.mean((own - others.mean(axis=1)) / spread))
    return found if math.isfinite(found) else 0.0


def _covered(sample: Sequence[Withheld]) -> Scores:
    """What part of each question each rest covers, as a search has it."""
    source = MemorySource(1)
    ids = source.add([one.rest for one in sample], np.ones((len(sample), 1), np.float32))
    index = KeywordIndex()
    index.catch_up(source)
    covered: list[FloatArray] = [index.covered(one.question, 1, None, ids)[1] for one in sample]
    return np.stack(covered).astype(np.float64)


def _unit(vector: Vectors) -> Vectors:
    """Of length 1; zeros stay zeros."""
    length = np.linalg.norm(vector)
    unit: Vectors = vector / length if length > 0 else vector
    return unit
