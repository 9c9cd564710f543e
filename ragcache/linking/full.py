"""The null strategy: recompute everything. Baseline, fallback and oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.selection import repairable, tokens_of


@dataclass(frozen=True)
class Full(Linker):
    name: ClassVar[str] = "full"
    recompute_all: ClassVar[bool] = True

    def select(self, prompt: LinkedPrompt) -> Positions:
        return tokens_of(repairable(prompt))
