"""The contract of splitters: from a text to spans of it that a model can take.

    from splitter import make_splitter
    from splitter.base import ChunkLimits, FastTokens

    splitter = make_splitter("auto", FastTokens(tokenizer), embedder.embed, ChunkLimits(max_tokens=200))
    for piece in splitter.split(text, kind="markdown"):
        text[piece.start : piece.end], piece.heading, piece.embedded(text)

Names: auto, fixed, semantic, structure. Kinds: what the loader knows of the document, one of splitter.documents.KINDS.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from splitter.spec import SplitterError

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerBase

Offsets = tuple[int, int]
Vectors = npt.NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]  # texts -> vectors of length 1. [texts, dimension]
HEADING_SEPARATOR = " > "
# The most tokens that one character counts, in byte-level tokenizers; a piece must be able to hold any character.
LEAST_MAX = 8
# Halves of surrogate pairs are no characters of any file, and the tokenizer refuses them.
SURROGATE = re.compile(r"[\ud800-\udfff]")
MARKUP = re.compile(r"[<>\[\]{}|]")


class Tokens(Protocol):
    """The tokens of the *model*, without special tokens. FastTokens makes one of a tokenizer of transformers."""

    def count(self, text: str) -> int:
        """Tokens of a text that stands alone."""
        ...

    def offsets(self, text: str) -> Sequence[Offsets]:
        """Where each token stands, ascending. Tokens may share a character, and leave characters out."""
        ...


@dataclass(frozen=True)
class CheckedTokens:
    """Asks before each text whether it is still wanted: `check` raises where it is not."""

    tokens: Tokens
    check: Callable[[], None]

    def count(self, text: str) -> int:
        self.check()
        return self.tokens.count(text)

    def offsets(self, text: str) -> Sequence[Offsets]:
        self.check()
        return self.tokens.offsets(text)


def checked_embed(embed: Embed, check: Callable[[], None]) -> Embed:
    def checked(texts: Sequence[str]) -> Vectors:
        check()
        return embed(texts)

    return checked


@dataclass(frozen=True)
class ChunkLimits:
    """How many tokens a piece may have, both ends included."""

    min_tokens: int = 32
    max_tokens: int = 240
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


class FastTokens:
    """Plain texts: what looks like a control token is the characters that it is.

    The tokenizer itself matches whole what it was given as added tokens and not as special ones, such as `<think>`.
    Where that happens, the text is read again without them. All other texts have the ids that the tokenizer gives.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self._control = _control_ids(tokenizer)

    def ids(self, text: str) -> Sequence[int]:
        sound = _sound(text)
        found: list[int] = self._tokenizer.encode(sound, **_PLAIN)
        return found if self._control.isdisjoint(found) else [one for one, _ in self._spelled(sound)]

    def count(self, text: str) -> int:
        return len(self.ids(text))

    def offsets(self, text: str) -> Sequence[Offsets]:
        sound = _sound(text)
        encoded = self._tokenizer(sound, return_offsets_mapping=True, **_PLAIN)
        found: Sequence[Offsets] = encoded["offset_mapping"]
        if self._control.isdisjoint(encoded["input_ids"]):
            return found
        return [place for _, place in self._spelled(sound)]

    def _spelled(self, text: str, start: int = 0) -> list[tuple[int, Offsets]]:
        """Ids with their places, which begin at `start`. What even the bare vocabulary has whole is cut inside."""
        found = self._spelling.encode(text, add_special_tokens=False)
        tokens: list[tuple[int, Offsets]] = list(zip(found.ids, found.offsets, strict=True))
        cuts = [begin + 1 for one, (begin, end) in tokens if one in self._control and end - begin > 1]
        if not cuts:
            return [(one, (start + begin, start + end)) for one, (begin, end) in tokens]
        spans = pairwise([0, *cuts, len(text)])
        return [one for begin, end in spans for one in self._spelled(text[begin:end], start + begin)]

    @cached_property
    def _spelling(self) -> Tokenizer:
        """A tokenizer that matches no control token. It takes a moment to make, and few texts need it."""
        added = self._tokenizer.added_tokens_decoder
        spelling: Tokenizer = copy.deepcopy(self._tokenizer.backend_tokenizer)
        spelling.add_special_tokens([added[one] for one in self._control])  # known ones keep their ids
        spelling.encode_special_tokens = True
        return spelling


def _control_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Of added tokens that a chat template may mean as control: those that look like it, or that it writes.

    Others are words and blanks, which a model was taught as single tokens for the sake of texts.
    """
    template = str(tokenizer.chat_template or "")

    def is_control(token: AddedToken) -> bool:
        written = not token.special and token.content.strip() and token.content in template
        return bool(written or MARKUP.search(token.content))

    control = {one for one, token in tokenizer.added_tokens_decoder.items() if is_control(token)}
    return frozenset(control - {tokenizer.unk_token_id})  # any text may hold what has no token


# `verbose` would warn of texts longer than the tokenizer thinks its model takes; documents are.
_PLAIN = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}


def _sound(text: str) -> str:
    return SURROGATE.sub("\ufffd", text)
