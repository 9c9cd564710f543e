"""The embedding that finds where meaning turns, which need not be as exact as the one that chunks are found by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from app.devices import has_bfloat16_dot, resolve_device
from app.models import resolve_embedder
from app.settings import Settings
from retriever.embedder import Embedder, batches
from retriever.types import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# A batch that stays in the caches of a core takes two thirds of the time of a large one. About 1,000 tokens.
CHARACTERS = 4096


def boundary_embedder(settings: Settings, exact: Embedder) -> Embedder:
    """Half of an ingest would go into embedding sentences only to compare neighbours. Where the CPU multiplies bfloat16
    they take half of the time in it, and the boundaries come out the same.
    """
    device = resolve_device(settings)
    if device.type != "cpu" or not has_bfloat16_dot():
        return exact
    return RoughEmbedder(resolve_embedder(settings.embedder), str(device))


class RoughEmbedder(Embedder):
    """In bfloat16, on a CPU."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for chosen in batches([len(text) for text in texts], CHARACTERS):
            vectors[chosen] = super().embed([texts[place] for place in chosen])
        return vectors

    def _read_model(self) -> SentenceTransformer:
        import torch

        from retriever.packing import linears, replace

        model = super()._read_model().bfloat16()
        if torch.backends.mkldnn.is_available():
            replace(linears(model, torch.bfloat16))
        return model
