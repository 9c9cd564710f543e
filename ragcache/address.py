"""The address of KV names what it was computed from. It is made here alone, of ids and of the addresses of what stood
before them: whoever asks for a capture cannot choose it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ragcache.errors import PromptError
from ragcache.types import Chunk, Segment, System, VariantKey, ids_hash

Placed = tuple[VariantKey, Sequence[int]]  # a stored variant's address and ids


def system_address(fingerprint: str, system: str) -> VariantKey:
    """Of the System segment with this hash. No System stands before it: a chunk of the same ids, which has one, is
    another entry.
    """
    return VariantKey(fingerprint, "", (), system)


def address_of(fingerprint: str, before: Sequence[Placed], segment: Segment) -> VariantKey:
    """Of a segment computed behind these variants: nothing for a System segment, else System and context chunks.

    Raises PromptError for what is not that, or when an address is not that of its ids.
    """
    if not before:
        if not isinstance(segment, System):
            raise PromptError(f"a {_kind(segment)} has nothing before it: put the System segment there")
        return system_address(fingerprint, segment.hash)
    if not isinstance(segment, Chunk):
        raise PromptError(f"a {_kind(segment)} stands behind others: of these, only chunks have KV to keep")
    (first, system), *context = before
    if first != system_address(fingerprint, ids_hash(system)):
        raise PromptError("what stands first is not the System segment of its ids, so nothing behind it can be named")
    for place, (key, ids) in enumerate(context, 1):
        if (key.fingerprint, key.system, key.chunk) != (fingerprint, first.chunk, ids_hash(ids)):
            raise PromptError(f"what stands at place {place} is not its chunk's KV behind this System segment")
    keys = [key for key, _ in context]
    return VariantKey(fingerprint, first.chunk, tuple(key.chunk for key in keys), segment.hash, history_of(keys))


def history_of(context: Sequence[VariantKey]) -> str:
    """Names what the context's KV saw beside itself; "" when each saw just the System and the context before it."""
    seen: list[str] = []
    for key in context:
        if key.history or key.context != tuple(seen):
            return hashlib.sha256("\n".join(other.digest for other in context).encode()).hexdigest()
        seen.append(key.chunk)
    return ""


def _kind(segment: Segment) -> str:
    return type(segment).__name__
