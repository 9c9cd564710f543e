"""Windows of tokens: for short items that have nothing to do with each other."""

from __future__ import annotations

from splitter.base import ChunkLimits, Embed, Piece, Splitter, Tokens, check_kind
from splitter.fit import fit, overlapped
from splitter.ruler import Ruler


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
