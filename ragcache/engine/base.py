"""What every engine offers, so that KVGen, the planner and the store serve each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from ragcache.address import address_of
from ragcache.errors import PromptError
from ragcache.keeping import Pause
from ragcache.types import KVForm, Segment, Variant, VariantKey, check_ids


@dataclass(frozen=True)
class EngineSpec:
    """What others need to know of an engine."""

    fingerprint: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    max_tokens: int
    vocabulary: int
    eos: frozenset[int]

    @property
    def form(self) -> KVForm:
        return KVForm(self.layers, self.kv_heads, self.head_dim)

    @property
    def token_bytes(self) -> int:
        """KV of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class Engine(ABC):
    """Holds the weights of one model. Threads may share it."""

    name: ClassVar[str]
    spec: EngineSpec

    def capture(self, before: Sequence[Variant], segment: Segment, pause: Pause | None = None) -> Variant:
        """KV and profile of `segment` behind the variants `before`, whose KV is taken as it is stored: nothing for the
        System segment, else System and context chunks. Where some of that KV has lost something, so has what is behind.
        `pause` is called amid the computation, if it can wait.

        Raises PromptError when they are not that, do not fit the model's context, or hold what is no token of it.
        """
        if not len(segment):
            kind = type(segment).__name__.lower()
            raise PromptError(f"an empty {kind} has no KV: " + ("drop it when splitting" if before else "give it text"))
        for ids in (*(variant.ids for variant in before), segment.ids):
            self.check_tokens(ids)
        key = address_of(self.spec.fingerprint, [(variant.key, variant.ids) for variant in before], segment)
        return self._capture(before, segment, key, pause)

    @abstractmethod
    def _capture(self, before: Sequence[Variant], segment: Segment, key: VariantKey, pause: Pause | None) -> Variant:
        """Compute what `capture` has checked. Raises PromptError when it does not fit the model's context."""

    def check_tokens(self, ids: Sequence[int]) -> None:
        """Raises PromptError for what is no token of this model, and for no tokens at all."""
        if not len(ids):
            raise PromptError("there are no tokens: give at least one")
        check_ids(ids)
        for token in (min(ids), max(ids)):
            if not 0 <= token < self.spec.vocabulary:
                raise PromptError(
                    f"token {token} is not in the model's vocabulary of {self.spec.vocabulary}: use the model's own "
                    "tokenizer"
                )
