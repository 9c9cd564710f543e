"""Baseline: H2O's heavy hitters, the tokens of each chunk that its later tokens look at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.limits import require_ratio
from ragcache.linking.selection import repairable, share, top, union


@dataclass(frozen=True)
class HeavyHitters(Linker):
    name: ClassVar[str] = "h2o"
    ratio: float = 0.15  # of each chunk's tokens

    def __post_init__(self) -> None:
        require_ratio(self.name, "ratio", self.ratio)

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(
            chunk.start + top(chunk.profile.received, share(self.ratio, chunk.length)) for chunk in repairable(prompt)
        )
