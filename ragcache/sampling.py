"""How the tokens of an answer are chosen, on every engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragcache.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: greedily by default (temperature 0)."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps all
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:  # false for nan
            raise ConfigError(f"temperature is {self.temperature}: use 0 (greedy) or a finite number above it")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}: use a share in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}: use 0 (all tokens) or more")
        if self.seed is not None and not 0 <= self.seed < 2**63:  # as every engine's generator takes it
            raise ConfigError(f"seed is {self.seed}: use a number from 0 to 2**63 - 1")
