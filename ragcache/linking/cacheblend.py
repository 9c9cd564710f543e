"""CacheBlend: the tokens whose KV deviates most from a full recompute, seen after its first layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, Linker, Positions, share, tokens_of, top


@dataclass(frozen=True)
class CacheBlend(Linker):
    """The budget is over the whole prompt: a chunk that fits well leaves its tokens to the others."""

    name: ClassVar[str] = "cacheblend"
    ratio: float = 0.15  # of all cached tokens that are not exact
    full_layers: int = 2  # recomputed for all tokens; the deviation is taken at the last of them

    def __post_init__(self) -> None:
        self.require_ratio("ratio")
        self.require_count("full_layers", least=1)
        if self.full_layers == 1:
            # K and V of the first layer come from the embeddings alone, in any context.
            raise ConfigError(
                f"linker {self.name!r}: full_layers=1 sees no deviation, since the first layer's KV is the same in "
                "every context: choose at least 2"
            )

    def select(self, prompt: LinkedPrompt) -> Positions:
        candidates = tokens_of(prompt.repairable)
        count = share(self.ratio, len(candidates))
        if count == 0:
            return candidates[:0]
        return candidates[top(prompt.deviation(self.full_layers)[candidates], count)]
