"""The vectors of chunks, each below its headings: an ingest and an embedding anew make the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from splitter.base import below_headings

if TYPE_CHECKING:
    from retriever import Vectors
    from retriever.embedder import Embedder

Headed = tuple[Sequence[str], str]  # headings, outermost first, and the text below them


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
