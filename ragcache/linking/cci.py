"""Cache-Craft (section 3.2): the tokens most shaped by their old context, as many as its change asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ragcache.errors import ConfigError
from ragcache.linking.auto import FLOOR
from ragcache.linking.base import LinkedPrompt, Linker, PlacedChunk, Positions, share, top, union
from ragcache.types import FloatArray, Profile


@dataclass(frozen=True)
class ContextImpact(Linker):
    """N = ⌈CFO · |C|⌉ tokens of each chunk (eqs 12 and 14).

    CCI is at least 1/2, so with alpha = 1 a chunk whose context is all new is repaired by half or more; `ratio` fixes
    the share instead, for comparisons at equal cost.

    `focused` is a focus on tokens where `focus` is one on chunks: of as many as all chunks together ask for, that share
    is repaired, wherever the question reads most of what leaned on an old context.
    """

    name: ClassVar[str] = "cci"
    alpha: float = 1.0  # scales CFO; eq 13 finds it on a validation set
    ratio: float | None = None  # of each chunk's tokens; overrides CFO and alpha
    focus: int = 0
    focused: float | None = None

    def __post_init__(self) -> None:
        self.require_count("focus")
        self.require_factor("alpha")
        if self.focused is not None:
            self.require_ratio("focused")
            if self.focus:
                raise ConfigError(f"linker {self.name!r}: focus={self.focus} and focused={self.focused}: give one")
        if self.ratio is not None:
            self.require_ratio("ratio")

    @property
    def probes(self) -> bool:
        return self.focused is not None

    def select(self, prompt: LinkedPrompt) -> Positions:
        if self.focused is not None:
            return self._focused(prompt, self.focused)
        return union(
            chunk.start + top(contextualisation(chunk.profile), self._count(chunk)) for chunk in prompt.repairable
        )

    def _focused(self, prompt: LinkedPrompt, part: float) -> Positions:
        count = share(part, sum(map(self._count, prompt.repairable)))
        if not count:
            return union(())
        worth, read = np.full(prompt.question, -np.inf), prompt.question_attention("mean").astype(np.float64)
        for chunk in prompt.repairable:
            own = slice(chunk.start, chunk.end)
            worth[own] = read[own] * (contextualisation(chunk.profile) + FLOOR)
        return top(worth, count)

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
