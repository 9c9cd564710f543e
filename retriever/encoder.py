"""Texts to tokens to vectors: what all ways have in common. retriever/sentence_model.py has the library's
own, which every model can go, and retriever/bert.py a quicker one.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from retriever import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from retriever.bert_folder import BertFolder

BATCH_TOKENS = 4096  # padding too: of a batch
TOKENIZED_AT_ONCE = 2048  # texts; the ids of a large document need not all be in memory
LONGEST = 1 << 16  # characters of a text; what stands behind them is not read
SHORTEST = 16  # characters of a part: a prompt may leave no room for any
TINY = 1e-12
IDS = "input_ids"
Row = Mapping[str, list[int]]  # of a text, what the model reads; IDS are among it


class Encoder(ABC):
    """Safe for threads.

    A text that is longer than what the model reads at once is read in parts; its vector is their mean.
    """

    def __init__(self, model: SentenceTransformer | BertFolder) -> None:
        dimension = model.get_embedding_dimension()
        assert dimension is not None
        self.dimension = dimension
        self.limit = model.max_seq_length or sys.maxsize  # tokens that are read at once
        self.prompts = dict(model.prompts)
        self.default_prompt = model.prompts.get(model.default_prompt_name or "") or ""

    def encode(self, texts: Sequence[str], role: str) -> Vectors:
        """Vectors of length 1, float32 [texts, dimension]. `role` tells what the model wants in front of each text."""
        prompt = self._prompt(role)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            part = [valid(text) for text in texts[start : start + TOKENIZED_AT_ONCE]]
            lengths = self._encode(part, vectors[start : start + len(part)], prompt)
            for place, length in enumerate(lengths):
                if length >= self.limit and len(pieces := self._pieces(part[place], prompt)) > 1:
                    vectors[start + place] = self._mean(pieces, prompt)
        return vectors

    def whole(self, texts: Sequence[str], role: str) -> list[bool]:
        """Whether each is read at once."""
        prompted = [self._prompt(role) + valid(text) for text in texts]
        rows = self.tokenized(prompted)
        return [
            len(text) <= LONGEST and (len(row[IDS]) < self.limit or self.length(text) <= self.limit)
            for row, text in zip(rows, prompted, strict=True)
        ]

    def _prompt(self, role: str) -> str:
        return self.prompts.get(role) or self.default_prompt

    def _encode(self, texts: list[str], out: Vectors, prompt: str = "") -> list[int]:
        """Vectors of what is read at once; returns how many tokens that is of each text behind the prompt."""
        rows = self.tokenized([prompt + text for text in texts])
        lengths = [len(row[IDS]) for row in rows]
        with torch.inference_mode():
            for chosen in batches(lengths):
                vectors = self.forward([rows[place] for place in chosen], prompt)
                out[chosen] = torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()
        return lengths

    def _pieces(self, text: str, prompt: str) -> list[str]:
        """Halves, and halves of these, until each fits: pieces of like length, so that each weighs like the others."""
        if len(text) < SHORTEST or self.length(prompt + text) <= self.limit:
            return [text]
        middle = _middle(text)
        return [*self._pieces(text[:middle], prompt), *self._pieces(text[middle:], prompt)]

    def _mean(self, texts: list[str], prompt: str) -> Vectors:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        lengths = np.array(self._encode(texts, vectors, prompt), dtype=np.float32)
        mean: Vectors = lengths @ vectors
        return mean / max(float(np.linalg.norm(mean)), TINY)

    @abstractmethod
    def tokenized(self, texts: list[str]) -> list[Row]:
        """Cut to what the model reads at most."""

    @abstractmethod
    def length(self, text: str) -> int:
        """Its tokens, none cut off. Where it is above the limit it may count the marks of a text more than once."""

    @abstractmethod
    def forward(self, rows: Sequence[Row], prompt: str = "") -> torch.Tensor:
        """Vectors of any length, [rows, dimension], of texts that begin with this prompt. Called in inference mode."""


def valid(text: str) -> str:
    """Half of a surrogate pair cannot be written as UTF-8, which the tokenizers want."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")


def _middle(text: str) -> int:
    """Where to cut a text in two: between words, if there are any near its middle."""
    half = len(text) // 2
    blank = next((place for place in range(half, len(text) - len(text) // 4) if text[place].isspace()), half)
    return max(1, blank)


def batches(lengths: Sequence[int], budget: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Places of texts of like length, each batch within the budget of tokens when padded to its longest.

    The longest come first, so that a batch that does not fit the memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size
