"""`auto` on a fourth of its budget and without its probe: the soonest first token that repairs at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.linking.auto import Auto


@dataclass(frozen=True)
class Fast(Auto):
    name: ClassVar[str] = "fast"
    ratio: float = 0.025
    depth: float = 0.0
