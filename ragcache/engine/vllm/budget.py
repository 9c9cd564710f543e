"""What a step leaves for linked prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ragcache.engine.vllm.orders import Compute


@dataclass(frozen=True)
class Budget:
    """Of one step."""

    left: int  # tokens that this step's ordinary work leaves
    busy: bool  # ordinary requests run in it
    spans: int  # pseudo-requests that one forward takes
    prefill: int = 0  # tokens of prompts among the ordinary work


@dataclass
class Forward:
    """What one takes in all."""

    tokens: int
    spans: int

    def without(self, slices: Iterable[Compute]) -> Forward:
        taken = list(slices)
        spans = sum(_runs(slice.rows.positions) for slice in taken)
        return Forward(self.tokens - sum(slice.tokens for slice in taken), self.spans - spans)

    @property
    def none(self) -> bool:
        return self.tokens <= 0 or self.spans <= 0


def _runs(positions: Sequence[int]) -> int:
    return 1 + sum(after != before + 1 for before, after in pairwise(positions))
