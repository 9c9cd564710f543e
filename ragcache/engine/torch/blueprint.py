"""A decoder built from its weights alone, by what an earlier load through transformers has shown of the model.

Importing transformers and building its model takes seconds, and most of what that finds out is the same at every start.
So the first load of a folder records the model's numbers, after it has seen that a decoder built by them computes the
very same bits. Models of other layouts, and large ones, whose weights would be held twice for that, go the long way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ragcache.engine import EngineSpec
from ragcache.engine.fingerprint import weight_files
from ragcache.engine.torch.decoder import Decoder, DecoderLayer, KVBuffer, linear
from ragcache.errors import ModelError
from ragcache.records import Basis, Records
from ragcache.rope import Rope, frequencies

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KIND = "engine"
FAMILIES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
LARGEST = 2 << 30  # bytes of weights
TOKENS = 24  # of the comparison
Weights = dict[str, torch.Tensor]


class _RmsNorm(nn.Module):
    """Operation by operation as in transformers, so that bits are equal."""

    def __init__(self, weight: torch.Tensor, eps: float):
        super().__init__()
        self.weight, self._eps = weight, eps

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        wide = rows.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._eps)
        return self.weight * wide.to(rows.dtype)


class _Mlp(nn.Module):
    def __init__(self, gate: nn.Module, up: nn.Module, down: nn.Module):
        super().__init__()
        self.gate, self.up, self.down = gate, up, down

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(nn.functional.silu(self.gate(rows)) * self.up(rows))
        return out


@dataclass(frozen=True)
class Blueprint:
    """All that the weights themselves do not say."""

    fingerprint: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_tokens: int
    vocabulary: int
    eos: list[int]
    scale: float
    eps: float
    frequencies: list[float]  # of RoPE
    scaling: float
    positions: int

    @classmethod
    def of(cls, model: PreTrainedModel, decoder: Decoder, spec: EngineSpec) -> Blueprint | None:
        """None for a model of another layout."""
        config = model.config
        if type(model).__name__ not in FAMILIES or config.hidden_act != "silu":
            return None
        turns, scaling = frequencies(config)
        return cls(
            spec.fingerprint, spec.layers, decoder.heads, spec.kv_heads, spec.head_dim, spec.max_tokens,
            spec.vocabulary, sorted(spec.eos), decoder.scale, float(config.rms_norm_eps), turns.float().tolist(),
            float(scaling), len(decoder.rope.cos),
        )  # fmt: skip

    def spec(self, dtype: torch.dtype, device: torch.device) -> EngineSpec:
        return EngineSpec(
            self.fingerprint, self.layers, self.kv_heads, self.head_dim, dtype, device, self.max_tokens,
            self.vocabulary, frozenset(self.eos),
        )  # fmt: skip

    def decoder(self, weights: Weights) -> Decoder:
        """Takes the weights out of the dictionary. Raises KeyError where one is missing."""
        embed = weights.pop("model.embed_tokens.weight")
        head = weights.pop("lm_head.weight", embed)
        device = embed.device
        with torch.device("meta"):
            last = nn.Linear(head.shape[1], head.shape[0], bias=False)
        last.weight = nn.Parameter(head, requires_grad=False)
        return Decoder(
            embed=nn.Embedding.from_pretrained(embed),
            layers=tuple(self._layer(weights, f"model.layers.{index}") for index in range(self.layers)),
            norm=_RmsNorm(weights.pop("model.norm.weight"), self.eps),
            head=last,
            rope=Rope.from_frequencies(torch.tensor(self.frequencies), self.scaling, self.positions, device),
            heads=self.heads,
            kv_heads=self.kv_heads,
            dim=self.head_dim,
            scale=self.scale,
        )

    def _layer(self, weights: Weights, name: str) -> DecoderLayer:
        def norm(part: str) -> _RmsNorm:
            return _RmsNorm(weights.pop(f"{name}.{part}.weight"), self.eps)

        def product(*parts: str) -> nn.Module:
            biases = [weights.pop(f"{name}.{part}.bias", None) for part in parts]
            found = [bias for bias in biases if bias is not None]
            assert len(found) in (0, len(parts)), name
            rows = [weights.pop(f"{name}.{part}.weight") for part in parts]
            return linear(torch.cat(rows) if len(rows) > 1 else rows[0], torch.cat(found) if found else None)

        normed = f"{name}.self_attn.q_norm.weight" in weights
        return DecoderLayer(
            input_norm=norm("input_layernorm"),
            qkv=product(*(f"self_attn.{one}_proj" for one in "qkv")),
            q_norm=norm("self_attn.q_norm") if normed else None,
            k_norm=norm("self_attn.k_norm") if normed else None,
            output=product("self_attn.o_proj"),
            post_norm=norm("post_attention_layernorm"),
            mlp=_Mlp(*(product(f"mlp.{one}_proj") for one in ("gate", "up", "down"))),
        )


def read_blueprint(
    records: Records, folder: Path, dtype: torch.dtype, device: torch.device
) -> tuple[Decoder, EngineSpec] | None:
    """What an earlier load has recorded of the same files, built from them."""
    values = records.read(KIND, folder, **_facts(dtype, device))
    if values is None:
        return None
    try:
        blueprint = Blueprint(**values)
        return blueprint.decoder(_weights(folder, dtype, device)), blueprint.spec(dtype, device)
    except (ModelError, OSError, TypeError, KeyError, SafetensorError):
        return None


@torch.inference_mode()
def write_blueprint(
    records: Records, folder: Path, basis: Basis | None, model: PreTrainedModel, decoder: Decoder, spec: EngineSpec
) -> bool:
    """Says whether the next load may go the short way, which it may if it computes the same."""
    blueprint = Blueprint.of(model, decoder, spec)
    if blueprint is None or sum(path.stat().st_size for path in folder.glob("*.safetensors")) > LARGEST:
        return False
    try:
        weights = _weights(folder, spec.dtype, spec.device)
        same = map(torch.equal, _computed(blueprint.decoder(weights)), _computed(decoder))
        if weights or not all(same):
            return False
    except (OSError, KeyError, AssertionError, RuntimeError, SafetensorError):
        return False  # weights under other names, or of other shapes
    records.write(KIND, folder, asdict(blueprint), basis, **_facts(spec.dtype, spec.device))
    return True


def _computed(decoder: Decoder) -> tuple[torch.Tensor, ...]:
    """Logits, K and V of some random tokens."""
    count = min(TOKENS, len(decoder.rope.cos))
    embed = decoder.embed.weight
    ids = torch.randint(0, len(embed), (count,), generator=torch.Generator().manual_seed(0)).to(embed.device)
    shape = (2, len(decoder.layers), decoder.kv_heads, count, decoder.dim)
    buffer = KVBuffer(torch.empty(shape, dtype=embed.dtype, device=embed.device))
    positions = torch.arange(count, device=embed.device)
    hidden = decoder.forward(decoder.embed(ids), positions, buffer, range(len(decoder.layers)))
    return decoder.logits(hidden), buffer.k, buffer.v, decoder.rope.cos, decoder.rope.sin


def _facts(dtype: torch.dtype, device: torch.device) -> Mapping[str, str]:
    return {"dtype": str(dtype), "device": str(device)}


def _weights(folder: Path, dtype: torch.dtype, device: torch.device) -> Weights:
    found: Weights = {}
    for path in weight_files(folder):
        for key, weight in load_file(path, device=str(device)).items():
            found[key] = weight.to(dtype)
    return found
