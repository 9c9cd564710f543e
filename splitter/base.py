"""The contract of splitters: from a text to spans of it that a model can take.

    from splitter import make_splitter
    from splitter.base import ChunkLimits
    from splitter.tokens import FastTokens

    splitter = make_splitter("auto", FastTokens(tokenizer), embedder.embed, ChunkLimits(max_tokens=200))
    for piece in splitter.split(text, kind="markdown"):
        text[piece.start : piece.end], piece.heading, piece.embedded(text)

Names: auto, fixed, semantic, structure. Kinds: what the loader knows of the document, one of KINDS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from splitter import SplitterError

Offsets = tuple[int, int]
Vectors = npt.NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]  # texts -> vectors of length 1. [texts, dimension]
KINDS = ("prose", "markdown", "html", "code", "table", "chat", "items")
HEADING_SEPARATOR = " > "
# The most tokens that one character counts, in byte-level tokenizers; a piece must be able to hold any character.
LEAST_MAX = 8


class Tokens(Protocol):
    """The tokens of the *model*, without special tokens. FastTokens makes one of a tokenizer of transformers."""

    def count(self, text: str) -> int:
        """Tokens of a text that stands alone."""
        ...

    def offsets(self, text: str) -> Sequence[Offsets]:
        """Where each token stands, ascending. Tokens may share a character, and leave characters out."""
        ...


@dataclass(frozen=True)
class ChunkLimits:
    """How many tokens a piece may have, both ends included."""

    min_tokens: int = 32
    max_tokens: int = 256
    overlap: int = 0  # tokens that a piece may share with the one before it

    def __post_init__(self) -> None:
        if self.max_tokens < LEAST_MAX:
            raise SplitterError(f"max_tokens={self.max_tokens}: choose {LEAST_MAX} or more, a character may count them")
        if not 0 <= self.overlap <= self.max_tokens // 2:
            raise SplitterError(f"overlap={self.overlap}: choose from 0 to {self.max_tokens // 2}, half of max_tokens")
        highest = (self.max_tokens - self.overlap) // 2
        if not 1 <= self.min_tokens <= highest:
            raise SplitterError(
                f"min_tokens={self.min_tokens}: choose from 1 to {highest}, half of max_tokens without the overlap, "
                "so that every text can be split within both"
            )


@dataclass(frozen=True, order=True)
class Piece:
    """`text[start:end]`, never blank at its edges."""

    start: int
    end: int
    heading: tuple[str, ...] = ()  # of the section that it starts in, outermost first

    def embedded(self, text: str) -> str:
        """What to embed of it: below its headings a piece is found more often than alone."""
        return below_headings(self.heading, text[self.start : self.end])


def below_headings(heading: Sequence[str], text: str) -> str:
    return f"{HEADING_SEPARATOR.join(heading)}\n{text}" if heading else text


class Splitter(ABC):
    """Splits one text at a time; keeps nothing between calls, so threads may share it.

    The pieces ascend, hold every character of the text that is not blank, and share none unless `overlap` asks for it.
    Each counts at most `max_tokens`, and at least `min_tokens` unless the whole text counts less: that is one piece.
    A blank text has no pieces. Same text, same pieces.
    """

    @abstractmethod
    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        """Raises SplitterError for a kind that is not in KINDS."""


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise SplitterError(f"unknown kind of document {kind!r}: choose from {', '.join(KINDS)}")
    return kind
