"""The vectors of sentences: what splitters compare, and what questions are compared with. It imports torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoder import batches
from retriever.sentences import Packed, pack
from splitter.units import prose_units

if TYPE_CHECKING:
    from retriever import Vectors
    from retriever.embedder import Embedder

# A batch that stays in the caches of a core takes two thirds of the time of a large one. About 1,000 tokens.
CHARACTERS = 4096
REMEMBERED = 1 << 14  # sentences; 25 MB of vectors of 384 dimensions
MOST_SENTENCES = 32  # of a chunk: what is too many is joined to neighbours


class SentenceEmbedder:
    """Where meaning turns and what a question is compared with are told by the same sentences, so that most of them are
    embedded once: it remembers the last ones. Safe for threads.
    """

    def __init__(self, embedder: Embedder):
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of length 1, [texts, dimension]"""
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
        new = [text for text in dict.fromkeys(texts) if text not in found]
        for chosen in batches([len(text) for text in new], CHARACTERS):
            part = [new[place] for place in chosen]
            found |= dict(zip(part, self._embedder.embed(part), strict=True))
        with self._lock:
            self._known |= {text: found[text] for text in new}
            for text in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
                del self._known[text]
        vectors = np.empty((len(texts), self._embedder.dimension), dtype=np.float32)
        for place, text in enumerate(texts):
            vectors[place] = found[text]
        return vectors

    def packed(self, chunks: Sequence[str]) -> list[Packed]:
        """The vectors of the sentences of each."""
        sentences = [sentences_of(text) for text in chunks]
        vectors = self.embed([one for of_chunk in sentences for one in of_chunk])
        ends = accumulate(map(len, sentences), initial=0)
        return [pack(vectors[first:last]) for first, last in pairwise(ends)]


def sentences_of(text: str) -> list[str]:
    """Sentences, or what its author set apart, such as rows and turns."""
    spans = [(start, end) for start, end, _ in prose_units(text, 0, len(text))] or [(0, len(text))]
    share = -(-len(spans) // MOST_SENTENCES)
    joined = [(spans[at][0], spans[min(at + share, len(spans)) - 1][1]) for at in range(0, len(spans), share)]
    return [text[start:end] for start, end in joined]
