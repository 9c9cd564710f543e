"""The splitter that fits the document: windows for short items, structure and meaning for everything else."""

from __future__ import annotations

from splitter.base import ChunkLimits, Embed, Piece, Splitter, Tokens, check_kind
from splitter.fixed import FixedSplitter
from splitter.structure import StructureSplitter

# Rows and records have nothing to do with each other: there is no meaning to follow from one to the next.
INDEPENDENT = ("items", "table")


class AutoSplitter(Splitter):
    """Prose has no marks to follow, so there `structure` does what `semantic` does."""

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits):
        self._fixed = FixedSplitter(tokens, embed, limits)
        self._structure = StructureSplitter(tokens, embed, limits)

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        chosen = self._fixed if check_kind(kind) in INDEPENDENT else self._structure
        return chosen.split(text, kind)
