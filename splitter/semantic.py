"""Boundaries where meaning turns: sentences that point the same way stay together.

That is dynamic programming: the best of all ways to cut, not a greedy one. A run of units is worth |sum of w·e| over
them, e the unit's vector and w the square root of its tokens: the more its units point the same way, the more of their
lengths is left. So it is spherical k-means with runs for clusters. Without a price, every unit would stand alone; each
run costs one, and the price is what makes the mean run `target` tokens long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splitter.base import ChunkLimits, Embed, Offsets, Piece, Splitter, Tokens, Vectors
from splitter.documents import check_kind
from splitter.ruler import Ruler, fit, overlapped
from splitter.spec import SplitterError
from splitter.units import Border, Ints, Marked, Units, check_granularity, coarser, prose_units

Floats = npt.NDArray[np.float64]

# What a run gains where its author began something new, by Border. One is what an average unit is worth alone.
GAINS = (0.0, 0.25, 0.25, 0.5)
assert len(GAINS) == len(Border)
# Of the maximum: long enough to answer a question, short enough to be about one thing.
TARGET = 0.625
FORBIDDEN = 1e6  # a run below the minimum is worth less than any other
# The lowest and the highest price of a run, with vectors and without.
COHERENT_PRICES, EVEN_PRICES = (0.0, 64.0), (-1.0, 1.0)
ROUNDS = 12  # halvings of the price
# Units that are embedded and grouped at a time, so that memory does not grow with the text.
BLOCK = 2048


@dataclass(frozen=True)
class Aim:
    """Tokens of a run, as the ruler counts them: a little room is left for counting it alone."""

    least: int
    target: float
    most: int

    @classmethod
    def of(cls, limits: ChunkLimits) -> Aim:
        most = limits.max_tokens - limits.overlap
        room = most // 50
        least = min(limits.min_tokens + room, most // 2)
        return cls(least, max(float(least), most * TARGET), most - room)


def group(units: Units, aim: Aim, vectors: Vectors | None) -> list[Offsets]:
    """Ascending runs of units: [first, last). Without vectors, runs of even length that start where the author did."""
    if not len(units):
        return []
    # Where the longest run that ends with each unit starts; one unit is always allowed, whatever it counts.
    reach = np.minimum(np.searchsorted(units.first_tokens, units.last_tokens - aim.most), np.arange(len(units)))
    wanted = max(1.0, int(units.last_tokens[-1] - units.first_tokens[0]) / aim.target)
    if vectors is None:
        return _priced(_even(units, reach, aim), reach, wanted, EVEN_PRICES)
    return _priced(_coherent(units, vectors, reach, aim), reach, wanted, COHERENT_PRICES)


def _even(units: Units, reach: Ints, aim: Aim) -> list[Floats]:
    gains = np.asarray(GAINS)[units.borders]
    worths = []
    for last, first in enumerate(reach, start=1):
        tokens = units.last_tokens[last - 1] - units.first_tokens[first:last]
        worths.append(gains[first:last] - (tokens / aim.target - 1) ** 2 / 2 - _shortage(tokens, aim))
    return worths


def _coherent(units: Units, vectors: Vectors, reach: Ints, aim: Aim) -> list[Floats]:
    gains = np.asarray(GAINS)[units.borders]
    weights = np.sqrt(np.maximum(units.tokens, 1))
    weights /= weights.mean()
    # Double precision: a sum over a stretch is a difference of two sums from the start. [units + 1, dimension]
    sums = np.zeros((len(units) + 1, vectors.shape[1]))
    np.cumsum(vectors * weights[:, None], axis=0, out=sums[1:])
    worths = []
    for last, first in enumerate(reach, start=1):
        run = sums[last] - sums[first:last]
        tokens = units.last_tokens[last - 1] - units.first_tokens[first:last]
        worths.append(np.sqrt(np.einsum("ud,ud->u", run, run)) + gains[first:last] - _shortage(tokens, aim))
    return worths


def _shortage(tokens: Ints, aim: Aim) -> Floats:
    shortage: Floats = np.maximum(0, aim.least - tokens) * FORBIDDEN
    return shortage


def _priced(worths: list[Floats], reach: Ints, wanted: float, prices: tuple[float, float]) -> list[Offsets]:
    """The cheapest runs at the price at which there are nearest to `wanted` of them."""
    low, high = prices
    best: list[Offsets] | None = None
    for _ in range(ROUNDS):
        price = (low + high) / 2
        runs = _cheapest(worths, reach, price)
        if best is None or abs(len(runs) - wanted) < abs(len(best) - wanted):
            best = runs
        low, high = (price, high) if len(runs) > wanted else (low, price)
    assert best is not None
    return best


def _cheapest(worths: list[Floats], reach: Ints, price: float) -> list[Offsets]:
    """worths[j][i] is what the run of units [reach[j] + i, j + 1) is worth."""
    values = np.zeros(len(worths) + 1)
    origins = np.zeros(len(worths) + 1, dtype=np.int64)
    for last, worth in enumerate(worths, start=1):
        first = int(reach[last - 1])
        candidates = values[first:last] + worth
        chosen = int(candidates.argmax())
        values[last] = candidates[chosen] - price
        origins[last] = first + chosen
    runs: list[Offsets] = []
    last = len(worths)
    while last:
        runs.append((int(origins[last]), last))
        last = int(origins[last])
    return runs[::-1]


class SemanticSplitter(Splitter):
    """Reads every text as prose. `granularity` says what is never cut unless it is above the maximum by itself."""

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits, granularity: str = "sentence"):
        if embed is None:
            raise SplitterError("semantic splitting needs an embedding: give one, or choose structure")
        self._tokens = tokens
        self._embed = embed
        self._limits = limits
        self._border = check_granularity(granularity)

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        check_kind(kind)
        ruler = Ruler(text, self._tokens)
        marked = coarser(ruler, prose_units(ruler.text, 0, len(text)), self._border, Aim.of(self._limits).most)
        spans = fit(ruler, spans_of_runs(ruler, marked, self._limits, self._embed), self._limits)
        return [Piece(start, end) for start, end in overlapped(ruler, spans, self._limits)]


def spans_of_runs(
    ruler: Ruler, marked: Iterable[Marked], limits: ChunkLimits, embed: Embed | None
) -> Iterator[Offsets]:
    """Runs of units as spans of the text."""
    aim = Aim.of(limits)
    for block in _blocks(marked):
        units = Units.of(ruler, block)
        vectors = None
        if embed is not None:
            vectors = np.asarray(embed([ruler.text[start:end] for start, end, _ in block]), dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(block) or not np.isfinite(vectors).all():
                raise SplitterError(
                    f"the embedding gave an array of shape {vectors.shape} for {len(block)} texts, or values that are "
                    "not finite: it should give one vector for each text"
                )
        for first, last in group(units, aim, vectors):
            yield int(units.starts[first]), int(units.ends[last - 1])


def _blocks(marked: Iterable[Marked]) -> Iterator[list[Marked]]:
    """Cut before a paragraph where one begins in the second half of a block."""
    block: list[Marked] = []
    for unit in marked:
        if len(block) >= BLOCK or (len(block) >= BLOCK // 2 and unit[2] >= Border.PARAGRAPH):
            yield block
            block = []
        block.append(unit)
    if block:
        yield block
