"""Models of random weights, with as many heads of K and V as of queries and with less, behind the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.models.loading import TorchModel
from benchmarks.cake import MODEL
from benchmarks.gpu.shapes import ModelShape, random_engine

HEADS = 8
# By name, the heads of K and V: table 6 has models with as many as of queries, with a quarter and with an eighth.
KV_HEADS: Mapping[str, int] = {"mha": HEADS, "gqa": HEADS // 4, "gqa8": HEADS // 8}
HIDDEN, INNER, LAYERS, HEAD_DIM = 512, 1408, 8, 64


def shaped(parts: TorchModel, name: str, tokens: int, seed: int) -> TorchModel:
    """With the engine of that shape, and a context for so many tokens."""
    if name == MODEL:
        return parts
    spec = parts.engine.spec
    sizes = (HIDDEN, INNER, LAYERS, HEADS, KV_HEADS[name], HEAD_DIM, spec.vocabulary)
    engine = random_engine(ModelShape(*sizes, tied=True, tokens=(tokens,)), spec.device, spec.dtype, seed)
    return replace(parts, engine=engine)


def paper_heads(parts: TorchModel, name: str) -> int:
    """Heads of K and V by which a disk has its speed: the paper's model has as many as of queries."""
    return parts.engine.spec.kv_heads if name == MODEL else HEADS
