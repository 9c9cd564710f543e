"""Llamas with random weights, built without transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch

from ragcache.engine.torch.blueprint import Blueprint
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from ragcache.types import Chunk, System, Text


@dataclass(frozen=True)
class ModelShape:
    hidden: int
    inner: int  # of the MLP
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool  # one matrix for embedding and logits
    tokens: tuple[int, ...]  # lengths of the prompts that are measured
    theta: float = 500_000.0
    spread: float = 0.02  # of the weights

    @property
    def context(self) -> int:
        return max(self.tokens) + 256


MODELS: Mapping[str, ModelShape] = {
    # Of heads that vLLM's kernels take, on a CPU too. Weights are large enough that what lies before a token matters.
    "tiny": ModelShape(128, 192, 3, 4, 2, 32, 199, True, (300, 600), spread=0.1),
    "1b": ModelShape(2048, 8192, 16, 32, 8, 64, 128_256, True, (1024, 4096, 16_384)),
    "8b": ModelShape(4096, 14_336, 32, 32, 8, 128, 128_256, False, (1024, 4096, 16_384)),
}


def random_engine(shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int) -> TorchEngine:
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    blueprint = Blueprint(
        fingerprint=hashlib.sha256(f"{shape} {dtype} {seed}".encode()).hexdigest(),
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_tokens=shape.context,
        vocabulary=shape.vocabulary,
        eos=[],
        scale=shape.head_dim**-0.5,
        eps=1e-5,
        frequencies=(shape.theta**-steps).tolist(),
        scaling=1.0,
        positions=shape.context,
    )
    decoder = blueprint.decoder(random_weights(shape, device, dtype, seed))
    return TorchEngine(decoder, blueprint.spec(dtype, device), _no_stock)


def _no_stock() -> NoReturn:
    raise ModelError("a model of random weights has nothing to be compared with")


def random_weights(shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """As a folder of safetensors names them."""
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(*size: int) -> torch.Tensor:
        return torch.empty(size, device=device, dtype=dtype).normal_(0, shape.spread, generator=generator)

    ones = torch.ones(shape.hidden, device=device, dtype=dtype)
    rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = {"model.embed_tokens.weight": drawn(shape.vocabulary, shape.hidden), "model.norm.weight": ones}
    if not shape.tied:
        weights["lm_head.weight"] = drawn(shape.vocabulary, shape.hidden)
    for layer in range(shape.layers):
        name = f"model.layers.{layer}"
        weights[f"{name}.input_layernorm.weight"] = weights[f"{name}.post_attention_layernorm.weight"] = ones
        for part, count in (("q", rows), ("k", kv_rows), ("v", kv_rows)):
            weights[f"{name}.self_attn.{part}_proj.weight"] = drawn(count, shape.hidden)
        weights[f"{name}.self_attn.o_proj.weight"] = drawn(shape.hidden, rows)
        for part in ("gate", "up"):
            weights[f"{name}.mlp.{part}_proj.weight"] = drawn(shape.inner, shape.hidden)
        weights[f"{name}.mlp.down_proj.weight"] = drawn(shape.hidden, shape.inner)
    return weights


@dataclass(frozen=True)
class RandomIds:
    """Prompts of an engine: ids as they come."""

    vocabulary: int
    seed: int

    def system(self, count: int = 64) -> System:
        return System(self._drawn(count, 1))

    def question(self, count: int = 16, turn: int = 0) -> Text:
        """Another one for each turn."""
        return Text(self._drawn(count, 10 + turn))

    def chunks(self, tokens: int, each: int) -> list[Chunk]:
        """Of so many tokens together; the last one is shorter."""
        ids = self._drawn(tokens, 3)
        return [Chunk(ids[start : start + each]) for start in range(0, tokens, each)]

    def _drawn(self, count: int, number: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(10_000 * self.seed + number)
        return tuple(torch.randint(0, self.vocabulary, (count,), generator=generator).tolist())
