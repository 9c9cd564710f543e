"""How near answers are to be, as it is asked for: read before anything that measures it is imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from app.answering.likeness import rouge_l, token_f1
from ragcache.errors import ConfigError

KL = "kl"
MEASURES: Mapping[str, Callable[[str, str], float] | None] = {
    KL: None,
    "f1": lambda answer, full: token_f1(answer, [full]),
    "rouge_l": rouge_l,
}


@dataclass(frozen=True)
class AnswerTarget:
    """How near answers are to be to those of a full recompute: by their divergence, or by the words of their texts."""

    measure: str  # of MEASURES
    value: float

    @classmethod
    def parse(cls, text: str) -> AnswerTarget:
        """Raises ConfigError for what is none."""
        measure, _, told = (part.strip() for part in text.partition("="))
        with suppress(ValueError):
            value = float(told)
            if measure in MEASURES and 0 < value < math.inf and (measure == KL or value <= 1):
                return cls(measure, value)
        raise ConfigError(f"{text!r} is no target: give kl=NATS such as kl=0.02, or f1=SHARE or rouge_l=SHARE up to 1")

    def __str__(self) -> str:
        return f"{self.measure}={self.value:g}"

    @property
    def alike(self) -> Callable[[str, str], float] | None:
        """Of an answer and that of the full recompute; None where texts do not count."""
        return MEASURES[self.measure]

    def reached(self, kl: float, alike: float) -> bool:
        """False for what is no number."""
        return kl <= self.value if self.alike is None else alike >= self.value
