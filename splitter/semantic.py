"""Boundaries where meaning turns: sentences that point the same way stay together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from splitter import SplitterError
from splitter.base import ChunkLimits, Embed, Offsets, Piece, Splitter, Tokens, check_kind
from splitter.fit import fit, overlapped
from splitter.grouping import Aim, group
from splitter.ruler import Ruler
from splitter.units import Border, Marked, Units, check_granularity, coarser, prose_units

# Units that are embedded and grouped at a time, so that memory does not grow with the text.
BLOCK = 2048


class SemanticSplitter(Splitter):
    """Reads every text as prose. `granularity` says what is never cut unless it is above the maximum by itself."""

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits, granularity: str = "sentence"):
        if embed is None:
            raise SplitterError("semantic splitting needs an embedding: give one, or choose structure")
        self._tokens = tokens
        self._embed = embed
        self._limits = limits
        self._border = check_granularity(granularity)

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        check_kind(kind)
        ruler = Ruler(text, self._tokens)
        marked = coarser(ruler, prose_units(ruler.text, 0, len(text)), self._border, Aim.of(self._limits).most)
        spans = fit(ruler, spans_of_runs(ruler, marked, self._limits, self._embed), self._limits)
        return [Piece(start, end) for start, end in overlapped(ruler, spans, self._limits)]


def spans_of_runs(
    ruler: Ruler, marked: Iterable[Marked], limits: ChunkLimits, embed: Embed | None
) -> Iterator[Offsets]:
    """Runs of units as spans of the text."""
    aim = Aim.of(limits)
    for block in _blocks(marked):
        units = Units.of(ruler, block)
        vectors = None
        if embed is not None:
            vectors = np.asarray(embed([ruler.text[start:end] for start, end, _ in block]), dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(block) or not np.isfinite(vectors).all():
                raise SplitterError(
                    f"the embedding gave an array of shape {vectors.shape} for {len(block)} texts, or values that are "
                    "not finite: it should give one vector for each text"
                )
        for first, last in group(units, aim, vectors):
            yield int(units.starts[first]), int(units.ends[last - 1])


def _blocks(marked: Iterable[Marked]) -> Iterator[list[Marked]]:
    """Cut before a paragraph where one begins in the second half of a block."""
    block: list[Marked] = []
    for unit in marked:
        if len(block) >= BLOCK or (len(block) >= BLOCK // 2 and unit[2] >= Border.PARAGRAPH):
            yield block
            block = []
        block.append(unit)
    if block:
        yield block
