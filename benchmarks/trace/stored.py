"""Passages in the real RAM tier, by the real plan of each prompt and the real orders of eviction; their KV is none, of
a size that grows with their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch

from benchmarks.trace.requests import Trace, TraceRequest
from ragcache.address import untold_lineage
from ragcache.errors import StoreError
from ragcache.link_job import worth_of
from ragcache.planning import plan_prompt
from ragcache.store import open_store
from ragcache.store.held import footprint
from ragcache.types import Chunk, Profile, System, Text, Variant, VariantKey

_ENGINE, _SYSTEM, _DIM = "trace", System((1,)), 8


class StoredPassages:
    def __init__(self, trace: Trace, capacity: int, order: str):
        """`capacity`: tokens."""
        self._chunks = [Chunk((2, place, *[3] * (int(n) - 2))[: int(n)]) for place, n in enumerate(trace.tokens)]
        of_token = footprint(_variant(Chunk((2,))))
        self._store = open_store(None, max(1, capacity * of_token), 0, "raw", order=order)

    def find(self, request: TraceRequest) -> list[bool]:
        """Which are there; those that are not are computed, and kept after the answer where they are worth it."""
        chunks = [self._chunks[place] for place in request.passages]
        plan = plan_prompt([_SYSTEM, *chunks, Text((1,))], _ENGINE, self._store)
        for chunk in plan.chunks:
            for found in chunk.candidates[:1]:
                if (entry := self._store.open(found.info.key)) is not None:
                    entry.close()
                    self._store.credit(found.info.key, worth_of(found))
        for chunk in plan.chunks:
            if not chunk.candidates:
                with suppress(StoreError):  # longer than all the room
                    self._store.put(_variant(chunk.segment))
        return [bool(chunk.candidates) for chunk in plan.chunks]

    @property
    def held(self) -> Sequence[int]:
        """Tokens of each that is there."""
        there = (self._store.variants(_key(one).family) for one in self._chunks)
        return [info.tokens for found in there for info in found]


def _key(chunk: Chunk) -> VariantKey:
    return VariantKey(_ENGINE, _SYSTEM.hash, (), chunk.hash)


def _variant(chunk: Chunk) -> Variant:
    n = len(chunk)
    ones = np.ones(n, np.float32)
    nothing = torch.zeros(1, 1, n, _DIM), torch.zeros(1, 1, n, _DIM)
    return Variant(
        _key(chunk), chunk.ids, *nothing, Profile(ones[np.newaxis], ones, ones, (1,)), untold_lineage(_key(chunk), n)
    )
