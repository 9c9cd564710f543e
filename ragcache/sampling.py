"""How the next token is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ragcache.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """Greedy by default (temperature 0)."""

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


class Sampler:
    """One answer's random state: the same seed gives the same answer."""

    def __init__(self, sampling: Sampling):
        self._sampling = sampling
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> int:
        """logits [vocabulary] -> token."""
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        above = logits.cpu().double() - float(logits.max())  # so that no temperature, however low, overflows
        kept = _keep(torch.softmax(above / self._sampling.temperature, -1), self._sampling)
        return int(torch.multinomial(kept, 1, generator=self._generator))


def _keep(probabilities: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero what top-k and top-p leave out; multinomial needs no sum of 1. [vocabulary]"""
    ordered, order = probabilities.sort(descending=True)
    out = ordered.cumsum(-1) - ordered >= sampling.top_p  # the token that crosses the share is still kept
    if sampling.top_k:
        out[sampling.top_k :] = True
    return torch.zeros_like(probabilities).scatter_(0, order, ordered.masked_fill(out, 0.0))
