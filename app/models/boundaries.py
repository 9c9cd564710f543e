"""The embedding that finds where meaning turns, which need not be as exact as the one that chunks are found by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from app.models.loading import load_embedder
from app.settings import Settings
from retriever import Vectors
from retriever.embedder import Embedder
from retriever.encoder import batches

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from retriever.bert_folder import BertFolder

# A batch that stays in the caches of a core takes two thirds of the time of a large one. About 1,000 tokens.
CHARACTERS = 4096


def boundary_embedder(settings: Settings) -> Embedder:
    """With the whole model, half of an ingest would go into embedding sentences only to compare neighbours."""
    return load_embedder(settings, RoughEmbedder)


class RoughEmbedder(Embedder):
    """The first third of the model's layers: boundaries come out as good (docs/log.md)."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for chosen in batches([len(text) for text in texts], CHARACTERS):
            vectors[chosen] = super().embed([texts[place] for place in chosen])
        return vectors

    def _read_model(self) -> SentenceTransformer | BertFolder:
        model = super()._read_model()
        shorten(model)
        return model


def shorten(model: nn.Module) -> None:
    """Leave out all but a third of the outermost stack of layers; a model without one stays whole."""
    for module in model.modules():
        for name, stack in module.named_children():
            if isinstance(stack, nn.ModuleList) and len(stack) > 1 and len({type(layer) for layer in stack}) == 1:
                setattr(module, name, stack[: -(-len(stack) // 3)])
                return
