"""Texts to vectors, by a local sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from retriever import Vectors
from retriever.bert import BertEncoder
from retriever.bert_folder import BertFolder, read_bert
from retriever.encoder import Encoder
from retriever.packing import multiplies
from retriever.shared_property import shared_property

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DOCUMENT, QUERY = "document", "query"  # names that models give to what they want in front of a text


class Embedder:
    """One model folder; it is read at the first use, and nothing is ever fetched."""

    def __init__(
        self,
        folder: Path,
        device: str = "cpu",
        *,
        narrow: bool = False,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        """`narrow`: in bfloat16, whose vectors point .9999 the same way, save on a CPU that is no quicker with it.
        `around`: each pass runs inside.
        """
        self.folder = folder
        self._device = device
        self._narrow = narrow
        self._around = around

    @shared_property
    def _encoder(self) -> Encoder:
        model = self._read_model()
        if self._narrow and (self._device != "cpu" or multiplies(torch.bfloat16)):
            model = model.bfloat16()
        if isinstance(model, BertFolder):
            return BertEncoder(model)
        from retriever.sentence_model import make_encoder

        return make_encoder(model)

    def _read_model(self) -> SentenceTransformer | BertFolder:
        found = read_bert(self.folder) if self._device == "cpu" else None
        if found is not None:
            return found
        from retriever.sentence_model import read_model

        return read_model(self.folder, self._device)

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of length 1, so that a dot product is the cosine. float32 [texts, dimension]"""
        with self._around():
            return self._encoder.encode(texts, DOCUMENT)

    def embed_query(self, text: str) -> Vectors:
        """Of a question; some models put other words in front of it than of a document. float32 [dimension]"""
        with self._around():
            vector: Vectors = self._encoder.encode([text], QUERY)[0]
        return vector

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each."""
        return [self._encoder.length(text) for text in texts]

    @property
    def limit(self) -> int:
        """Tokens that the model reads at once. A longer text is read in parts, whose mean is its vector."""
        return self._encoder.limit

    def whole(self, texts: Sequence[str]) -> list[bool]:
        """Whether each is read at once."""
        return self._encoder.whole(texts, DOCUMENT)

    def whole_query(self, text: str) -> bool:
        return self._encoder.whole([text], QUERY)[0]
