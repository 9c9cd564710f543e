"""How much KV models take: bytes for each token on the disk, by their shapes, and what fits into a budget.

A chunk is taken as one of typical length amid a document, with what its file has beside K and V.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from app.ingestion.estimate import nbytes_per_token, shape_of
from ragcache.errors import ConfigError
from ragcache.store.codec import CODECS, KVShape
from ragcache.types import KVForm

# In models of 16 bits `raw` is what `bf16` is.
SHOWN_CODECS = tuple(name for name in CODECS if name != "raw")
# Layers, heads of K and V, size of a head: as the makers' config.json say.
KNOWN = {
    "SmolLM2 135M": KVForm(30, 3, 64),
    "SmolLM2 360M": KVForm(32, 5, 64),
    "SmolLM2 1.7B": KVForm(24, 32, 64),
    "Llama 3.2 1B": KVForm(16, 8, 64),
    "Llama 3.2 3B": KVForm(28, 8, 128),
    "Llama 3.1 8B": KVForm(32, 8, 128),
    "Qwen2.5 0.5B": KVForm(24, 2, 64),
    "Qwen2.5 1.5B": KVForm(28, 2, 128),
    "Qwen2.5 3B": KVForm(36, 2, 128),
    "Qwen2.5 7B": KVForm(28, 4, 128),
    "Qwen2.5 14B": KVForm(48, 8, 128),
    "Qwen2.5 32B": KVForm(64, 8, 128),
    "Qwen2.5 72B": KVForm(80, 8, 128),
    "Qwen3 0.6B": KVForm(28, 8, 128),
    "Qwen3 1.7B": KVForm(28, 8, 128),
    "Qwen3 4B": KVForm(36, 8, 128),
    "Qwen3 8B": KVForm(36, 8, 128),
    "Qwen3 14B": KVForm(40, 8, 128),
    "Qwen3 32B": KVForm(64, 8, 128),
    "Mistral 7B v0.3": KVForm(32, 8, 128),
}


@dataclass(frozen=True)
class ModelSize:
    """Of a model that computes in 16 bits."""

    name: str
    form: KVForm

    def nbytes(self, codec: str) -> float:
        """For each token."""
        shape = KVShape(self.form.layers, self.form.kv_heads, 1, self.form.head_dim, torch.bfloat16)
        return nbytes_per_token(shape, codec)

    def fitting(self, budget: int, codec: str) -> int:
        """Tokens whose KV the budget holds."""
        return int(budget / self.nbytes(codec))


def known_sizes() -> list[ModelSize]:
    return [ModelSize(name, form) for name, form in KNOWN.items()]


def sizes_of(folders: Iterable[Path]) -> list[ModelSize]:
    """By the config.json of each: weights need not be there. Raises ConfigError where it does not say the shape."""
    return [_size_of(folder) for folder in folders]


def _size_of(folder: Path) -> ModelSize:
    file = folder / "config.json"
    try:
        shape = shape_of(json.loads(file.read_text(encoding="utf-8")), torch.bfloat16)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{file} does not say plainly how many layers and heads the model has") from None
    return ModelSize(folder.resolve().name, shape.form)


def rows(sizes: Sequence[ModelSize], budget: int) -> list[dict[str, Any]]:
    """As JSON has them: bytes of a token, and tokens in the budget, by codec."""
    return [
        {"model": one.name, "layers": one.form.layers, "kv_heads": one.form.kv_heads, "head_dim": one.form.head_dim}
        | {f"{codec}_bytes_per_token": round(one.nbytes(codec)) for codec in SHOWN_CODECS}
        | {f"{codec}_tokens": one.fitting(budget, codec) for codec in SHOWN_CODECS}
        for one in sizes
    ]
