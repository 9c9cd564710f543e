"""The embedding that finds where meaning turns, which need not be as exact as the one that chunks are found by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.devices import has_bfloat16_dot, resolve_device
from app.models import resolve_embedder
from app.settings import Settings
from retriever.embedder import Embedder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def boundary_embedder(settings: Settings, exact: Embedder) -> Embedder:
    """Half of an ingest goes into embedding sentences only to compare neighbours. Where the CPU multiplies bfloat16
    they take half of the time in it, and the boundaries come out the same.
    """
    device = resolve_device(settings)
    if device.type != "cpu" or not has_bfloat16_dot():
        return exact
    return RoughEmbedder(resolve_embedder(settings.embedder), str(device))


class RoughEmbedder(Embedder):
    """In bfloat16. Layers of that type are not packed, so a pass of few tokens gains nothing."""

    def _read_model(self) -> SentenceTransformer:
        return super()._read_model().bfloat16()
