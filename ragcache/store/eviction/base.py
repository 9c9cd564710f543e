"""The contract of orders of eviction: a function of an entry, so another policy is another function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Evictable:
    """An entry as the policy sees it."""

    name: str
    nbytes: int
    used: int  # when it was last put or got: grows with time, comparable within one tier only
    pinned: bool


EvictionOrder = Callable[[Evictable], float]  # the lowest goes first; of equal ones that which was used longest ago
