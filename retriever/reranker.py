"""A cross-encoder: reads question and chunk together, which is slow and tells better than their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import CrossEncoder

from retriever import RetrieverError
from retriever.sentence_model import loading
from retriever.shared_property import shared_property
from retriever.types import FloatArray


class Reranker:
    """One model folder; it is read at the first use, and nothing is ever fetched."""

    def __init__(self, folder: Path, device: str = "cpu", batch: int = 16) -> None:
        self.folder = folder
        self._device = device
        self._batch = batch

    @shared_property
    def _model(self) -> CrossEncoder:
        with loading("reranking", self.folder):
            model = CrossEncoder(str(self.folder), device=self._device, local_files_only=True)
        if model.num_labels != 1:
            raise RetrieverError(
                f"the model in {self.folder} gives {model.num_labels} labels; a reranker gives one number"
            )
        ranking: CrossEncoder = model
        return ranking

    def score(self, question: str, texts: Sequence[str]) -> FloatArray:
        """One number per text; more is better. [texts]"""
        if not texts:
            return np.empty(0)
        pairs = [(_valid(question), _valid(text)) for text in texts]
        scores = self._model.predict(pairs, batch_size=self._batch, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(scores, dtype=np.float64)


def _valid(text: str) -> str:
    """Half of a surrogate pair cannot be written as UTF-8, which the tokenizers want."""
    return text.encode("utf-8", "replace").decode("utf-8")
