"""Texts to vectors, by a local sentence-transformers model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.errors import RetrieverError
from retriever.fingerprint import fingerprint
from retriever.types import Vectors as Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH_TOKENS = 4096  # padding too: of a batch
TOKENIZED_AT_ONCE = 2048  # texts; the ids of a large document need not all be in memory
PROBE = ["What does the harbour master of the old town write down every evening?"]
SENTENCE = "sentence_embedding"  # the name under which the library gives what we want
DOCUMENT, QUERY = "document", "query"  # names that models give to what they want in front of a text


class Embedder:
    """One model folder; it is read at the first use, and nothing is ever fetched."""

    def __init__(self, folder: Path, device: str = "cpu", *, narrow: bool = False):
        """`narrow`: in bfloat16, whose vectors point .9999 the same way."""
        self.folder = folder
        self._device = device
        self._narrow = narrow

    @cached_property
    def _model(self) -> SentenceTransformer:
        from retriever.packing import pack

        model = self._read_model().bfloat16() if self._narrow else self._read_model()
        pack(model, lambda: model(dict(model.tokenizer(PROBE, return_tensors="pt").to(model.device)))[SENTENCE])
        return model

    def _read_model(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as talk

        bars = talk.is_progress_bar_enabled()
        talk.disable_progress_bar()
        try:
            return SentenceTransformer(str(self.folder), device=self._device, local_files_only=True).eval()
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise RetrieverError(f"cannot load the embedding model in {self.folder}: {reason}") from error
        finally:
            if bars:
                talk.enable_progress_bar()

    @cached_property
    def fingerprint(self) -> str:
        """Of the folder; the model is not loaded for it."""
        return fingerprint(self.folder)

    @property
    def dimension(self) -> int:
        dimension = self._model.get_embedding_dimension()
        assert dimension is not None
        return dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of length 1, so that a dot product is the cosine. float32 [texts, dimension]"""
        return self._embed(texts, DOCUMENT)

    def embed_query(self, text: str) -> Vectors:
        """Of a question; some models put other words in front of it than of a document. float32 [dimension]"""
        vector: Vectors = self._embed([text], QUERY)[0]
        return vector

    def check(self, expected: str, remedy: str) -> None:
        """Raises RetrieverError where vectors were made by another model; `remedy` is what the user should run."""
        if self.fingerprint != expected:
            raise RetrieverError(
                f"the embeddings of this collection were made by another model ({expected}) than the one in "
                f"{self.folder} ({self.fingerprint}), so they cannot be compared: {remedy}"
            )

    def _embed(self, texts: Sequence[str], role: str) -> Vectors:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            part = [_valid(text) for text in texts[start : start + TOKENIZED_AT_ONCE]]
            vectors[start : start + len(part)] = self._embed_part(part, role)
        return vectors

    def _embed_part(self, texts: list[str], role: str) -> Vectors:
        import torch

        model = self._model
        prompt = model.prompts.get(role) or model.prompts.get(model.default_prompt_name or "") or ""
        tokenized = model.tokenizer(
            [prompt + text for text in texts], truncation=True, max_length=model.max_seq_length, padding=False
        )
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        with torch.inference_mode():
            for chosen in batches([len(ids) for ids in tokenized["input_ids"]]):
                vectors[chosen] = self._forward({name: [rows[at] for at in chosen] for name, rows in tokenized.items()})
        return vectors

    def _forward(self, rows: dict[str, Any]) -> Vectors:
        import torch

        model = self._model
        padded = model.tokenizer.pad(rows, return_tensors="pt").to(model.device)
        vectors = model(dict(padded))[SENTENCE]  # [texts, dimension]
        normal: Vectors = torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()
        return normal


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


def _valid(text: str) -> str:
    """Half of a surrogate pair cannot be written as UTF-8, which the tokenizers want."""
    return text.encode("utf-8", "replace").decode("utf-8")
