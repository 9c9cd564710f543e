"""Small random models: what stock transformers computes, and our engine over the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.rope import Rope, turn
from ragcache.types import Chunk, System, Text

VOCABULARY = 199
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "attn_implementation": "eager",
}
FAMILIES: Mapping[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {}),  # biases
    "qwen3": (Qwen3Config, {}),  # q and k norms
    "mistral": (MistralConfig, {"sliding_window": None}),
}
# The original context is far shorter than our prompts, so that the frequencies really change.
ROPES: Mapping[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 64,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    model: transformers.PreTrainedModel
    engine: TorchEngine


@dataclass(frozen=True)
class Stock:
    """What transformers computes for a prompt."""

    logits: torch.Tensor  # [n, vocabulary]
    k: torch.Tensor  # [layers, kv_heads, n, head_dim], rotated
    v: torch.Tensor  # [layers, kv_heads, n, head_dim]
    attentions: list[torch.Tensor]  # per layer [heads, n, n]; none where the kernel keeps them to itself


def make_config(family: str = "llama", rope: str = "default", **settings: Any) -> PreTrainedConfig:
    kind, own = FAMILIES[family]
    return kind(**{**SIZES, "rope_parameters": dict(ROPES[rope]), **own, **settings})


def make_model(config: PreTrainedConfig, seed: int = 0) -> transformers.PreTrainedModel:
    """Weights large enough that attention is sharp and the context matters; norms and biases are no identities."""
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            weight.normal_(centre, 0.2, generator=generator)
    return model


def to_dtype(model: transformers.PreTrainedModel, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """As a folder is read in this number format: RoPE's frequencies stay in float32."""
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model.to(dtype)
    model.model.rotary_emb.inv_freq = frequencies
    return model


def make_tiny(family: str = "llama", rope: str = "default", **settings: Any) -> Tiny:
    model = make_model(make_config(family, rope, **settings))
    return Tiny(model, TorchEngine.from_model(model))


@torch.inference_mode()
def stock(model: transformers.PreTrainedModel, ids: Sequence[int]) -> Stock:
    out = model(torch.tensor([list(ids)]), use_cache=True, output_attentions=True)
    layers = out.past_key_values.layers
    k, v = (torch.stack([getattr(layer, name)[0] for layer in layers]) for name in ("keys", "values"))
    return Stock(out.logits[0].float(), k, v, [weights[0] for weights in out.attentions])


def draw(count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, VOCABULARY, (count,), generator=generator).tolist())


def make_system(count: int = 7) -> System:
    return System(draw(count, 1000))


def make_chunks(*lengths: int, seed: int = 0) -> list[Chunk]:
    return [Chunk(draw(length, 100 * seed + place + 1)) for place, length in enumerate(lengths)]


def make_question(count: int = 5) -> Text:
    return Text(draw(count, 2000))


def garbage(engine: TorchEngine, capacity: int) -> KVBuffer:
    """A buffer that holds what no position should: reading any of it shows."""
    buffer = engine.buffer(capacity)
    generator = torch.Generator().manual_seed(3)
    buffer.k.normal_(0, 30, generator=generator)
    buffer.v.normal_(0, 30, generator=generator)
    return buffer


def unrotated(rope: Rope, x: torch.Tensor, positions: torch.Tensor | slice) -> torch.Tensor:
    """The inverse of `rotate`: the scaling of YaRN is divided out as well."""
    cos, sin = rope.cos[positions], rope.sin[positions]
    scale = cos**2 + sin**2
    return turn(x, cos / scale, -sin / scale)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    error = float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())
    assert error <= tolerance, f"off by {error:.2e} of the largest"
