"""Place the caches and repair nothing: the floor of the cost, and of the quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.selection import tokens_of


@dataclass(frozen=True)
class Naive(Linker):
    name: ClassVar[str] = "naive"

    def select(self, prompt: LinkedPrompt) -> Positions:
        return tokens_of([])
