"""Tokens of a text by a tokenizer of transformers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from splitter.base import Offsets

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Halves of surrogate pairs are no characters of any file, and the tokenizer refuses them.
SURROGATE = re.compile(r"[\ud800-\udfff]")


class FastTokens:
    """Plain texts: what looks like a control token is counted as the characters that it is."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(_sound(text), **_PLAIN))

    def offsets(self, text: str) -> Sequence[Offsets]:
        encoded = self._tokenizer(_sound(text), return_offsets_mapping=True, **_PLAIN)
        found: Sequence[Offsets] = encoded["offset_mapping"]
        return found


# `verbose` would warn of texts longer than the tokenizer thinks its model takes; documents are.
_PLAIN = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}


def _sound(text: str) -> str:
    return SURROGATE.sub("\ufffd", text)
