"""Structures for vectors by name. A new one is a file here, a line in STRUCTURES and a row in the tests."""

from __future__ import annotations

from collections.abc import Mapping

from retriever import RetrieverError
from retriever.vectors.base import Flat, Structure
from retriever.vectors.hnsw import Hnsw
from retriever.vectors.ivf import Ivf

AUTO = "auto"
FLAT_UP_TO = 20_000  # chunks: exact, and within a millisecond
HNSW_UP_TO = 100_000  # beyond it building a graph takes longer than training lists

# From those for few to those for many.
STRUCTURES: Mapping[str, type[Structure]] = {"flat": Flat, "hnsw": Hnsw, "ivf": Ivf}


def check_name(name: str) -> str:
    if name != AUTO and name not in STRUCTURES:
        raise RetrieverError(f"unknown vector index {name!r}: choose from {', '.join((AUTO, *STRUCTURES))}")
    return name


def choose(name: str, chunks: int) -> str:
    """The structure that `name` means for so many chunks."""
    if check_name(name) != AUTO:
        return name
    return "flat" if chunks <= FLAT_UP_TO else "hnsw" if chunks <= HNSW_UP_TO else "ivf"
