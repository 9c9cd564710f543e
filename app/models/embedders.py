"""The embedders and the reranker of the settings, loaded. It imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from app.models import resolve_embedder
from app.models.loading import resolve_device, resolve_dtype
from app.settings import Settings
from ragcache.engine.resources import FreeCores
from retriever import Vectors
from retriever.embedder import Embedder
from retriever.encoder import batches

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from retriever.bert_folder import BertFolder
    from retriever.sentence_model import Reranker

# A batch that stays in the caches of a core takes two thirds of the time of a large one. About 1,000 tokens.
CHARACTERS = 4096


def load_embedder(settings: Settings, kind: type[Embedder] = Embedder) -> Embedder:
    device = resolve_device(settings)
    narrow = resolve_dtype(settings, device) is torch.bfloat16
    return kind(resolve_embedder(settings.embedder), str(device), narrow=narrow, around=FreeCores().lent)


def load_reranker(settings: Settings) -> Reranker | None:
    if settings.reranker is None:
        return None
    from retriever.sentence_model import Reranker  # it imports sentence-transformers

    return Reranker(resolve_embedder(settings.reranker), str(resolve_device(settings)))


class RoughEmbedder(Embedder):
    """What finds where meaning turns, which need not be as exact as what chunks are found by.

    With the whole model, half of an ingest would go into embedding sentences only to compare neighbours. It has the
    first third of the layers: boundaries come out as good (docs/log.md).
    """

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
