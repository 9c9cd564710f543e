"""The vectors of chunks, each below its headings, and of their sentences: an ingest and an embedding anew make the same
ones.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoder import batches
from retriever.sentences import Packed, pack
from splitter.base import below_headings
from splitter.units import prose_units

if TYPE_CHECKING:
    from retriever import Vectors
    from retriever.embedder import Embedder

Headed = tuple[Sequence[str], str]  # headings, outermost first, and the text below them
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


def embed_chunks(embedder: Embedder, chunks: Sequence[Headed]) -> tuple[Vectors, int]:
    """Vectors, [chunks, dimension], and how many chunks the embedder had to read in parts.

    Outer headings make room for the text, as far as that helps; the innermost one stays.
    """
    headings, texts = [list(heading) for heading, _ in chunks], [text for _, text in chunks]
    long = _long(embedder, headings, texts, range(len(chunks)))
    shortened = [place for place in long if len(headings[place]) > 1]
    while shortened:
        for place in shortened:
            del headings[place][0]
        still = set(_long(embedder, headings, texts, shortened))
        long = [place for place in long if place not in shortened or place in still]
        shortened = [place for place in shortened if place in still and len(headings[place]) > 1]
    return embedder.embed([below_headings(*one) for one in zip(headings, texts, strict=True)]), len(long)


def in_parts(embedder: Embedder, count: int) -> str:
    """For the user."""
    return (
        f"the embedder reads {embedder.limit} tokens at once: {count} longer chunks were embedded in parts; chunks of "
        "fewer RAGCACHE_CHUNK_TOKENS, in a new collection, would be found more exactly"
    )


def _long(
    embedder: Embedder, headings: Sequence[Sequence[str]], texts: Sequence[str], places: Sequence[int]
) -> list[int]:
    """Of these places, those of chunks that do not fit."""
    whole = embedder.whole([below_headings(headings[place], texts[place]) for place in places])
    return [place for place, fits in zip(places, whole, strict=True) if not fits]
