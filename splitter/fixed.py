"""Windows of tokens for short items that have nothing to do with each other; structure and meaning for all else."""

from __future__ import annotations

from splitter.base import ChunkLimits, Embed, Piece, Splitter, Tokens
from splitter.documents import INDEPENDENT, check_kind
from splitter.ruler import Ruler, fit, overlapped
from splitter.structure import StructureSplitter


class FixedSplitter(Splitter):
    """Even windows. Each ends with a paragraph, a line, a sentence or a word, whichever ends in its last quarter."""

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits):
        del embed  # meaning has no say here
        self._tokens = tokens
        self._limits = limits

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        check_kind(kind)
        ruler = Ruler(text, self._tokens)
        windows = fit(ruler, [(0, len(text))], self._limits)
        return [Piece(start, end) for start, end in overlapped(ruler, windows, self._limits)]


class AutoSplitter(Splitter):
    """What fits the document. Prose has no marks to follow, so there `structure` does what `semantic` does.

    `granularity` is that of `structure`; windows have none.
    """

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits, granularity: str = "sentence"):
        self._fixed = FixedSplitter(tokens, embed, limits)
        self._structure = StructureSplitter(tokens, embed, limits, granularity)

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        chosen = self._fixed if check_kind(kind) in INDEPENDENT else self._structure
        return chosen.split(text, kind)
