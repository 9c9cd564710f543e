"""Tokens of a text by a tokenizer of transformers."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from splitter.base import Offsets

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerBase

# Halves of surrogate pairs are no characters of any file, and the tokenizer refuses them.
SURROGATE = re.compile(r"[\ud800-\udfff]")
MARKUP = re.compile(r"[<>\[\]{}|]")


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
