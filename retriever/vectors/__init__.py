"""Structures for vectors by name. A new one is a file here, a line in STRUCTURES and a row in the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from retriever import RetrieverError
from retriever.vectors.base import Structure

AUTO = "auto"
FLAT_UP_TO = 20_000  # chunks: exact, and within a millisecond
HNSW_UP_TO = 100_000  # beyond it building a graph takes longer than training lists


def _structure(module: str, structure: str) -> type[Structure]:
    found: object = getattr(import_module(f"retriever.vectors.{module}"), structure)
    assert isinstance(found, type), found
    assert issubclass(found, Structure), found
    return found


# From those for few to those for many.
STRUCTURES: Mapping[str, Callable[[], type[Structure]]] = {
    "flat": partial(_structure, "flat", "Flat"),
    "hnsw": partial(_structure, "hnsw", "Hnsw"),
    "ivf": partial(_structure, "ivf", "Ivf"),
}


def check_name(name: str) -> str:
    if name != AUTO and name not in STRUCTURES:
        raise RetrieverError(f"unknown vector index {name!r}: choose from {', '.join((AUTO, *STRUCTURES))}")
    return name


def choose(name: str, chunks: int) -> str:
    """The structure that `name` means for so many chunks."""
    if check_name(name) != AUTO:
        return name
    return "flat" if chunks <= FLAT_UP_TO else "hnsw" if chunks <= HNSW_UP_TO else "ivf"


def load_structure(name: str) -> type[Structure]:
    return STRUCTURES[check_name(name)]()
