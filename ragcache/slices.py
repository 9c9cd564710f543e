"""Long chunks, in parts: where computing from the front and loading from the back may meet within one."""

from __future__ import annotations

from collections.abc import Iterator

from ragcache.store.findings import BUCKET
from ragcache.store.format import BLOCK, FINE
from ragcache.types import Span


def slices(span: Span, tier: str) -> Iterator[Span]:
    """What is computed at a time of an entry of this tier, by its positions. A file of one block is read whole, and
    what lies in a bucket comes whole: so that is computed whole, or not at all. The last slice may be longer.
    """
    start = span.start
    if tier != BUCKET and len(span) > BLOCK:
        while span.end - start >= 2 * FINE:
            yield Span(start, start + FINE)
            start += FINE
    yield Span(start, span.end)
