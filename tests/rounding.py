"""KV that a codec has rounded, as folders hold it from before the KV of a prefill was kept as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragcache.store import KVStore
from ragcache.store.codec import KVShape, open_codec
from ragcache.types import Variant


def rounded(variant: Variant, codec: str) -> Variant:
    shape, kept = KVShape.of(variant.k), open_codec(codec)
    if kept.lossless(shape.dtype):
        return variant
    k, v = kept.decode(kept.encode(variant.k, variant.v), shape)
    return replace(variant, k=k, v=v, lineage=variant.lineage.rounded(codec))


def keep_rounded(store: KVStore, variants: Iterable[Variant], codec: str) -> None:
    for variant in variants:
        store.put(rounded(variant, codec))
