"""What tests know of each linker of the registry. A new one needs a row.

tests/contract/test_linkers.py holds each to its budget, on random prompts. tests/equivalence runs WITHOUT_LIMIT on
models: what computes all of the chunks again must equal a prefill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ragcache.linking.base import PlacedChunk

Budget = Callable[[list[PlacedChunk]], int]


@dataclass(frozen=True)
class LinkerRow:
    """`budget`: with the default settings it recomputes at most so many tokens of the chunks that are cached and not
    exact. `unlimited`: what makes it recompute all of them, in one way or more; none where nothing does.
    """

    budget: Budget
    unlimited: tuple[str, ...]


def tokens(chunks: list[PlacedChunk]) -> int:
    return sum(chunk.length for chunk in chunks)


def share(ratio: float) -> Budget:
    return lambda chunks: math.ceil(ratio * tokens(chunks))


def share_of_each(ratio: float) -> Budget:
    return lambda chunks: sum(math.ceil(ratio * chunk.length) for chunk in chunks)


def by_impact(chunks: list[PlacedChunk]) -> int:
    return sum(math.ceil(chunk.reuse.cfo() * chunk.length) for chunk in chunks)


LINKER_ROWS: Mapping[str, LinkerRow] = {
    "auto": LinkerRow(share(0.1), ("auto:ratio=1", "auto:kl=0")),
    "fast": LinkerRow(share(0.025), ("fast:ratio=1",)),
    "full": LinkerRow(tokens, ("full",)),
    "naive": LinkerRow(lambda chunks: 0, ()),
    "first_tokens": LinkerRow(lambda chunks: 16 * len(chunks), ("first_tokens:k=10000",)),
    "boundary": LinkerRow(lambda chunks: 16 * len(chunks), ("boundary:k=10000",)),
    "cci": LinkerRow(by_impact, ("cci:ratio=1",)),
    "cacheblend": LinkerRow(share(0.15), ("cacheblend:ratio=1",)),
    "query": LinkerRow(
        lambda chunks: 8 * len(chunks) + share(0.08)(chunks), ("query:ratio=1", "query:first=10000,ratio=0")
    ),
    "random": LinkerRow(share_of_each(0.15), ("random:ratio=1",)),
    "h2o": LinkerRow(share_of_each(0.15), ("h2o:ratio=1",)),
}
WITHOUT_LIMIT = [spec for row in LINKER_ROWS.values() for spec in row.unlimited]
