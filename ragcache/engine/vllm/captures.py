"""KVGen's step on a worker: a segment is computed behind what was placed, slice by slice, and kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ragcache.address import address_of, lineage_of
from ragcache.engine.vllm.orders import Capture
from ragcache.engine.vllm.placement import Exchange, Linking
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import PromptError, StoreError
from ragcache.store.base import KVStore
from ragcache.types import Chunk, System, Variant

logger = logging.getLogger(__name__)


def captured(
    capture: Capture, linking: Linking, spans: SpanRunner, store: KVStore, exchanges: Mapping[str, Exchange]
) -> str | None:
    """Computes the next slice; what is complete is handed over, or stored -> why it was not."""
    if (reason := misnamed(capture, linking)) is not None:
        return f"not captured: {reason}"
    if linking.loading is not None and linking.loading.lags:
        return "not captured: upper layers of what stands before it have not come"
    if linking.recorder is None:
        lengths = [span.stop - span.start for _, span in sorted(linking.placed.items())]
        assert sum(lengths) == capture.start, (lengths, capture.start)
        linking.recorder = spans.recorder(linking.room, lengths, len(capture.segment))
    spans.capture(capture.rows, linking.recorder)
    if not capture.last:
        return None
    k, v, profile = linking.recorder.result()
    lineage = lineage_of(len(capture.segment), linking.behind)
    variant = Variant(capture.key, capture.segment.ids, k, v, profile, lineage)
    if not capture.exchange:
        return _stored(variant, store)
    if capture.exchange in exchanges:
        exchanges[capture.exchange].captured = variant
    return None


def _stored(variant: Variant, store: KVStore) -> str | None:
    try:
        store.put(variant)
    except StoreError as error:
        logger.warning("KV not stored: %s", error)
        return f"KV not stored: {error}"
    return None


def misnamed(capture: Capture, linking: Linking) -> str | None:
    """Why what was placed and will be computed is not what the key says; None when it is."""
    before = [linking.variants[index] for index in sorted(linking.variants)]
    end = sum(len(placed.ids) for placed in before)
    first = capture.rows.positions[0]
    rows = capture.segment.ids[first - end : first - end + len(capture.rows.ids)]
    behind = sorted(linking.variants) == list(range(len(before))) and capture.start == end <= first
    if not behind or capture.rows.ids != rows or capture.rows.positions != tuple(range(first, first + len(rows))):
        return "it does not stand right behind what was placed"
    kind = Chunk if before else System
    segment = kind(capture.segment.ids, capture.segment.border)
    try:
        found = address_of(capture.key.fingerprint, [(placed.key, placed.ids) for placed in before], segment)
    except PromptError as error:
        return str(error)
    return None if found == capture.key else "its key does not name what was placed before it"
