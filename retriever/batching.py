"""Texts of like length together, so that little is computed for padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BATCH_TOKENS = 4096  # padding too: of a batch


def batches(lengths: Sequence[int], budget: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Places of texts of like length, each batch within the budget of tokens when padded to its longest.

    The longest come first, so that a batch that does not fit the memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size
