"""Passages in the real tiers, by the real plan of each prompt and the real orders of eviction; their KV is none, of a
size that grows with their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from benchmarks.trace.requests import Trace, TraceRequest
from ragcache.address import untold_lineage
from ragcache.errors import StoreError
from ragcache.planning import Candidate, plan_prompt
from ragcache.store import open_store
from ragcache.store.codec import open_codec
from ragcache.store.entry import pack
from ragcache.store.held import footprint
from ragcache.types import Chunk, Profile, System, Text, Variant, VariantKey

_ENGINE, _SYSTEM, _DIM, _CODEC = "trace", System((1,)), 8, "raw"


class StoredPassages:
    def __init__(
        self,
        trace: Trace,
        capacity: int,
        order: str,
        memory: float = 0.0,
        folder: Path | None = None,
        remote: str = "",
        shared: int = 0,
    ):
        """`capacity`: tokens, all in memory; or on the disk in this folder, under that share of it in memory, and over
        a bucket of as many as are `shared`.
        """
        self._chunks = [Chunk((2, place, *[3] * (int(n) - 2))[: int(n)]) for place, n in enumerate(trace.tokens)]
        of_token = footprint(_variant(Chunk((2,))))
        ram, disk = (int(memory * capacity), self._files(capacity)) if folder else (capacity, 0)
        of_all = self._files(shared) if remote else None
        self.store = open_store(
            folder,
            ram_bytes=max(1, ram * of_token),
            disk_bytes=disk,
            codec=_CODEC,
            order=order,
            remote=remote,
            remote_bytes=of_all,
        )

    def _files(self, capacity: int) -> int:
        """Bytes of files: the same share of what all passages take as it is of their tokens."""
        everything = sum(len(part) for one in self._chunks for part in pack(_variant(one), open_codec(_CODEC))[1])
        return max(1, capacity * everything // sum(map(len, self._chunks)))

    def find(self, request: TraceRequest) -> list[str]:
        """The tier of each that is there. Others ("") are computed, and kept after the answer if they are worth it."""
        chunks = [self._chunks[place] for place in request.passages]
        plan = plan_prompt([_SYSTEM, *chunks, Text((1,))], _ENGINE, self.store)
        tiers = [self._brought(chunk.candidates) for chunk in plan.chunks]
        for chunk, tier in zip(plan.chunks, tiers, strict=True):
            if not tier:
                with suppress(StoreError):  # longer than all the room
                    self.store.put(_variant(chunk.segment))
        return tiers

    def _brought(self, candidates: Sequence[Candidate]) -> str:
        """Read whole, so that memory has it from now on, if it is worth its room there."""
        for found in candidates[:1]:
            if (fetched := self.store.get(found.info.key)) is not None:
                self.store.credit(found.info.key, found.worth)
                return fetched.tier
        return ""

    def close(self) -> None:
        self.store.close()

    @property
    def held(self) -> Sequence[int]:
        """Tokens of each that is there."""
        there = (self.store.variants(_key(one).family) for one in self._chunks)
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
