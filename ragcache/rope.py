"""Rotary position embedding: put on in float32, where a cached K is placed, so it can stand at any position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ragcache.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SUPPORTED = ("default", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """Tables of cos and sin for every position of the model's context."""

    cos: torch.Tensor  # [positions, head_dim] float32, attention scaling (YaRN) included; both halves are the same
    sin: torch.Tensor  # [positions, head_dim] float32; the first half is negated, so x·cos + swapped(x)·sin turns x

    @classmethod
    def from_config(cls, config: PretrainedConfig, device: torch.device, length: int | None = None) -> Rope:
        """`length`: positions, where the configuration's are not those that are run.

        Raises ModelError for a RoPE whose angles depend on more than the position.
        """
        turns, scaling = frequencies(config)
        if 2 * len(turns) != head_dim(config):
            raise ModelError(
                f"this model rotates only {2 * len(turns)} of {head_dim(config)} dimensions ({_kind(config)})"
            )
        return cls.from_frequencies(turns, scaling, length or config.max_position_embeddings, device)

    @classmethod
    def from_frequencies(cls, turns: torch.Tensor, scaling: float, length: int, device: torch.device) -> Rope:
        """`turns` [head_dim / 2]: radians per position."""
        positions = torch.arange(length, dtype=torch.float32)
        angles = positions[:, None] * turns.float()[None, :]
        cos, sin = angles.cos() * scaling, angles.sin() * scaling
        return cls(torch.cat((cos, cos), -1).to(device), torch.cat((-sin, sin), -1).to(device))

    def rotate(self, x: torch.Tensor, positions: torch.Tensor | slice) -> torch.Tensor:
        """x [..., n, head_dim] turned to `positions` [n]; computed in float32, returned in x's dtype."""
        return turn(x, self.cos[positions], self.sin[positions])

    def rotate_into(self, out: torch.Tensor, x: torch.Tensor, positions: slice) -> None:
        """`rotate` written straight to `out` [..., n, head_dim]: the placing of a chunk has no other copy."""
        half = x.shape[-1] // 2
        cos, sin = self.cos[positions, half:], self.sin[positions, half:]
        first, second = x[..., :half].float(), x[..., half:].float()
        out[..., :half] = (first * cos).addcmul_(second, sin, value=-1)
        out[..., half:] = (second * cos).addcmul_(first, sin)  # never in place: in float32, `second` is x itself


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [..., head_dim] by rows of the tables, which broadcast."""
    wide = x.float()
    return (wide * cos).addcmul_(wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


def head_dim(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _kind(config: PretrainedConfig) -> str:
    parameters = getattr(config, "rope_parameters", None)
    if not parameters or "rope_type" not in parameters:
        raise ModelError(f"{config.model_type} has no single RoPE (rope_parameters: {parameters}): not supported")
    kind = str(parameters["rope_type"])
    if kind not in SUPPORTED:
        raise ModelError(f"RoPE type {kind!r} is not supported: choose a model with one of {', '.join(SUPPORTED)}")
    return kind


def frequencies(config: PretrainedConfig) -> tuple[torch.Tensor, float]:
    """Radians per position [rotated dimensions / 2], and the scaling of attention (YaRN)."""
    kind = _kind(config)
    if kind == "default":
        return _default_frequencies(config)
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    made: Callable[[PretrainedConfig], tuple[torch.Tensor, float]] = ROPE_INIT_FUNCTIONS[kind]
    return made(config)


def _default_frequencies(config: PretrainedConfig) -> tuple[torch.Tensor, float]:
    dim = int(head_dim(config) * config.rope_parameters.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return 1.0 / (config.rope_parameters["rope_theta"] ** exponents), 1.0
