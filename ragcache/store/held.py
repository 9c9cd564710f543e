"""Variants in memory."""

from __future__ import annotations

from dataclasses import replace

import torch

from ragcache.store.base import KV, OpenEntry
from ragcache.types import Origin, Span, Variant


class HeldEntry(OpenEntry):
    """All there already."""

    def __init__(self, variant: Variant, tier: str, nbytes: int | None = None):
        """`nbytes`: that were brought for it, where that is not its KV as it is."""
        self._variant, self.tier = variant, tier
        self.nbytes, self.blocks = variant.nbytes if nbytes is None else nbytes, (Span(0, len(variant)),)
        layers, heads, n, dim = variant.k.shape
        self.shape, self.dtype = (layers, heads, n, dim), variant.k.dtype

    def origin(self) -> Origin:
        return self._variant.origin

    def variant(self, read: KV | None = None) -> Variant:
        return self._variant

    def read(self, block: int, layers: range) -> KV:
        assert block == 0
        part = slice(layers.start, layers.stop)
        return self._variant.k[part], self._variant.v[part]

    def close(self) -> None: ...


def footprint(variant: Variant) -> int:
    """Bytes of the memory behind K and V, which they may share, and of the profile."""
    storages = (variant.k.untyped_storage(), variant.v.untyped_storage())
    kv = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    return kv + variant.profile.nbytes


def compact(variant: Variant) -> Variant:
    """In ordinary memory, and not a small view that keeps a large buffer alive (a slice of a prompt's KV)."""
    if variant.k.is_cpu and not variant.k.is_pinned() and footprint(variant) < 2 * variant.nbytes:
        return variant
    return replace(variant, k=copied(variant.k.cpu()), v=copied(variant.v.cpu()))


def copied(part: torch.Tensor) -> torch.Tensor:
    """Apart from what it was a view of, in one piece."""
    return part.clone(memory_format=torch.contiguous_format)
