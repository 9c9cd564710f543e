"""What one step takes, and what has been put into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ragcache.engine.vllm.orders import Capture, Compute, Load, Orders, Probe
from ragcache.policy.rates import Work


@dataclass(frozen=True)
class Budget:
    """Of one step."""

    left: int  # tokens that this step's ordinary work leaves
    busy: bool  # ordinary requests run in it
    spans: int  # pseudo-requests that one forward takes
    prefill: int = 0  # tokens of prompts among the ordinary work
    work: Work = field(default_factory=Work)  # what the ordinary work computes


@dataclass
class Forward:
    """What one takes in all."""

    tokens: int
    spans: int
    ample: int = 0  # tokens for what was not cached, which vLLM would compute in steps as large as they come

    def without(self, slices: Iterable[Compute]) -> Forward:
        taken = list(slices)
        spans = sum(_runs(slice.rows.positions) for slice in taken)
        tokens = sum(slice.tokens for slice in taken)
        return Forward(self.tokens - tokens, self.spans - spans, self.ample - tokens)

    def take(self, slice: Compute) -> None:
        self.tokens -= slice.tokens
        self.ample -= slice.tokens
        self.spans -= _runs(slice.rows.positions)

    @property
    def none(self) -> bool:
        return self.tokens <= 0 or self.spans <= 0


@dataclass
class StepWork:
    """Of one step."""

    load: list[Load] = field(default_factory=list)
    probe: list[Probe] = field(default_factory=list)
    compute: list[Compute] = field(default_factory=list)
    capture: list[Capture] = field(default_factory=list)

    def orders(
        self, release: tuple[str, ...], finish: tuple[str, ...], failed: tuple[str, ...], *, idle: bool
    ) -> Orders:
        parts = (tuple(self.load), tuple(self.probe), tuple(self.compute), tuple(self.capture))
        return Orders(release, *parts, finish, failed, idle)


def _runs(positions: Sequence[int]) -> int:
    return 1 + sum(after != before + 1 for before, after in pairwise(positions))
