"""How the tokens of an answer are chosen, on every engine, and what is told of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ragcache.errors import ConfigError

FinishReason = Literal["stop", "length", "cancelled"]
MOST_LOGPROBS = 20  # of each token, as vLLM and OpenAI's API have it
MOST_BIAS = 100.0
MOST_PENALTY = 2.0
MOST_REPETITION = 100.0  # so that no logit overflows


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: greedily by default (temperature 0).

    Logits are changed in this order: bias, repetition, frequency, presence; the greedy answer follows what is left.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps all
    seed: int | None = None
    min_p: float = 0.0  # share of the likeliest token's probability that a token must have; 0 keeps all
    frequency_penalty: float = 0.0  # off a token's logit for each time that the answer has it
    presence_penalty: float = 0.0  # once, if the answer has it
    repetition_penalty: float = 1.0  # divides a logit above 0, and multiplies one below, of what prompt or answer has
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()  # by token; kept as pairs in their order
    logprobs: int | None = None  # what is told beside each token: so many of the likeliest, with their probabilities

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:  # false for nan
            raise ConfigError(f"temperature is {self.temperature}: use 0 (greedy) or a finite number above it")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}: use a share in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}: use 0 (all tokens) or more")
        if self.seed is not None and not 0 <= self.seed < 2**63:  # as every engine's generator takes it
            raise ConfigError(f"seed is {self.seed}: use a number from 0 to 2**63 - 1")
        if not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p is {self.min_p}: use 0 (all tokens) or a share up to 1")
        for name in ("frequency_penalty", "presence_penalty"):
            if not -MOST_PENALTY <= getattr(self, name) <= MOST_PENALTY:
                raise ConfigError(f"{name} is {getattr(self, name)}: use a number from -2 to 2")
        if not 1 / MOST_REPETITION <= self.repetition_penalty <= MOST_REPETITION:
            raise ConfigError(f"repetition_penalty is {self.repetition_penalty}: use 1 (none), or from 0.01 to 100")
        if self.logprobs is not None and not (type(self.logprobs) is int and 0 <= self.logprobs <= MOST_LOGPROBS):
            raise ConfigError(f"logprobs is {self.logprobs}: use None (none are told) or a number from 0 to 20")
        object.__setattr__(self, "logit_bias", _pairs(self.logit_bias))

    @property
    def penalises(self) -> bool:
        """Whether it matters what the prompt and the answer have."""
        return bool(self.frequency_penalty or self.presence_penalty) or self.repetition_penalty != 1


@dataclass(frozen=True)
class TokenLogprobs:
    """What the model itself expected where a token was chosen: before penalties, biases and the temperature."""

    token: int
    logprob: float  # natural logarithm
    top: tuple[tuple[int, float], ...]  # the likeliest tokens, best first


def _pairs(bias: Mapping[int, float] | tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    found = dict(bias)
    for token, value in found.items():
        if type(token) is not int or token < 0:
            raise ConfigError(f"logit_bias names token {token!r:.100}: use ids of tokens")
        if not -MOST_BIAS <= value <= MOST_BIAS:
            raise ConfigError(f"logit_bias of token {token} is {value}: use a number from -100 to 100")
    return tuple(sorted(found.items()))
