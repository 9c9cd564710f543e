"""Cache-Craft (section 3.2): the tokens most shaped by their old context, as many as its change asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, share, top, union
from ragcache.types import FloatArray, Profile


@dataclass(frozen=True)
class ContextImpact(Linker):
    """N = ⌈CFO · |C|⌉ tokens of each chunk (eqs 12 and 14).

    CCI is at least 1/2, so with alpha = 1 a chunk whose context is all new is repaired by half or more; `ratio` fixes
    the share instead, for comparisons at equal cost.
    """

    name: ClassVar[str] = "cci"
    alpha: float = 1.0  # scales CFO; eq 13 finds it on a validation set
    ratio: float | None = None  # of each chunk's tokens; overrides CFO and alpha
    focus: int = 0

    def __post_init__(self) -> None:
        self.require_count("focus")
        self.require_factor("alpha")
        if self.ratio is not None:
            self.require_ratio("ratio")

    def select(self, prompt: LinkedPrompt) -> Positions:
        return union(
            chunk.start + top(contextualisation(chunk.profile), self._count(chunk)) for chunk in prompt.repairable
        )

    def _count(self, chunk: PlacedChunk) -> int:
        changed = replace(chunk.reuse, beta=0.0) if chunk.system_gone else chunk.reuse  # what was before it is another
        ratio = changed.cfo(self.alpha) if self.ratio is None else self.ratio
        return share(ratio, chunk.length)


def contextualisation(profile: Profile) -> FloatArray:
    """Per token, its attention to the old context (eq 14). [n]

    A variant without context chunks is ranked by the System row: the tokens that looked outside the chunk at all.
    """
    rows = profile.inter[1:] if len(profile.lengths) > 1 else profile.inter
    return np.asarray(rows.sum(axis=0))
