"""Texts to tokens to vectors: the library's own way, which every model can go; retriever/bert.py has a quicker one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from retriever.batching import batches
from retriever.packing import pack
from retriever.types import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENIZED_AT_ONCE = 2048  # texts; the ids of a large document need not all be in memory
PROBE = ["What does the harbour master of the old town write down every evening?"]
SENTENCE = "sentence_embedding"  # the name under which the library gives what we want
IDS = "input_ids"
Row = Mapping[str, list[int]]  # of a text, what the model reads; IDS are among it


class Encoder(ABC):
    """Safe for threads."""

    def __init__(self, model: SentenceTransformer) -> None:
        dimension = model.get_embedding_dimension()
        assert dimension is not None
        self.dimension = dimension
        self.prompts = dict(model.prompts)
        self.default_prompt = model.prompts.get(model.default_prompt_name or "") or ""

    def encode(self, texts: Sequence[str], role: str) -> Vectors:
        """Vectors of length 1, float32 [texts, dimension]. `role` tells what the model wants in front of each text."""
        prompt = self.prompts.get(role) or self.default_prompt
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            part = [prompt + _valid(text) for text in texts[start : start + TOKENIZED_AT_ONCE]]
            self._encode(part, vectors[start : start + len(part)])
        return vectors

    def _encode(self, texts: list[str], out: Vectors) -> None:
        rows = self.tokenized(texts)
        with torch.inference_mode():
            for chosen in batches([len(row[IDS]) for row in rows]):
                vectors = self.forward([rows[place] for place in chosen])
                out[chosen] = torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()

    @abstractmethod
    def tokenized(self, texts: list[str]) -> list[Row]:
        """Cut to what the model reads at most."""

    @abstractmethod
    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        """Vectors of any length, [rows, dimension]. Called in inference mode."""


class LibraryEncoder(Encoder):
    """As sentence-transformers does it, with its weights packed where that can be."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__(model)
        self._model = model
        pack(model, lambda: self.forward(self.tokenized(PROBE)))

    def tokenized(self, texts: list[str]) -> list[Row]:
        found = self._model.tokenizer(texts, truncation=True, max_length=self._model.max_seq_length, padding=False)
        return [{name: rows[place] for name, rows in found.items()} for place in range(len(texts))]

    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        padded = self._model.tokenizer.pad(list(rows), return_tensors="pt").to(self._model.device)
        vectors: torch.Tensor = self._model(dict(padded))[SENTENCE]
        return vectors


def make_encoder(model: SentenceTransformer) -> Encoder:
    """The quickest that gives the vectors that the library gives. The model belongs to the encoder from now on."""
    from retriever.bert import BertEncoder

    return BertEncoder.of(model) or LibraryEncoder(model)


def _valid(text: str) -> str:
    """Half of a surrogate pair cannot be written as UTF-8, which the tokenizers want."""
    return text.encode("utf-8", "replace").decode("utf-8")
