"""Texts to vectors, by a local sentence-transformers model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from retriever.errors import RetrieverError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = npt.NDArray[np.float32]


class Embedder:
    """One model folder; it is read at the first use, and nothing is ever fetched."""

    def __init__(self, folder: Path, device: str = "cpu"):
        self.folder = folder
        self._device = device

    @cached_property
    def _model(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as talk

        bars = talk.is_progress_bar_enabled()
        talk.disable_progress_bar()
        try:
            return SentenceTransformer(str(self.folder), device=self._device, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise RetrieverError(f"cannot load the embedding model in {self.folder}: {reason}") from error
        finally:
            if bars:
                talk.enable_progress_bar()

    @property
    def dimension(self) -> int:
        dimension = self._model.get_embedding_dimension()
        assert dimension is not None
        return dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of length 1, so that a dot product is the cosine. float32 [texts, dimension]"""
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        vectors = self._model.encode(
            list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)
