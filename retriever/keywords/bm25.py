"""BM25 over segments. The numbers are those of Okapi BM25 with an idf that is never negative."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from retriever.keywords.segment import Array, WordSegment, hashed
from retriever.types import FloatArray, IntArray

K1 = 1.2
B = 0.75
MOST_WORDS = 64  # of a question; the rarest are taken, which weigh most


def search(
    segments: Sequence[WordSegment], asked: Sequence[str], k: int, allowed: IntArray | None
) -> tuple[IntArray, FloatArray]:
    """The best k chunks that hold any of the words, best first and then by id. `allowed` ascends."""
    live = sum(segment.live for segment in segments)
    live_words = sum(segment.live_words for segment in segments)
    if not live_words:
        return np.empty(0, np.int64), np.empty(0)
    mean_words = live_words / live
    postings = _postings(segments, asked)
    totals = [np.zeros(len(segment.ids)) for segment in segments]
    for parts in postings:
        holding = sum(len(places) for places, _ in parts)
        weight = idf(live, holding) * (K1 + 1)
        for segment, total, (places, times) in zip(segments, totals, parts, strict=True):
            lengths = segment.lengths[places] * (K1 * B / mean_words) + K1 * (1 - B)
            total[places] += weight * times / (times + lengths)
    least = _reached(postings, totals, k) if allowed is None else 0.0
    found = [_best(segment, total, k, allowed, least) for segment, total in zip(segments, totals, strict=True)]
    ids = np.concatenate([ids for ids, _ in found])
    scores = np.concatenate([scores for _, scores in found])
    order = np.lexsort((ids, -scores))[:k]
    return ids[order].astype(np.int64), scores[order]


def idf(live: int, holding: int) -> float:
    return math.log(1 + (live - holding + 0.5) / (holding + 0.5))


def _postings(segments: Sequence[WordSegment], asked: Sequence[str]) -> list[list[tuple[Array, Array]]]:
    """Per word that is there its postings in each segment, in an order that the words' own does not change."""
    hashes = np.array(sorted(map(hashed, asked)), dtype=np.uint64)
    spans = [segment.spans(hashes) for segment in segments]
    counts = sum((stops - starts for starts, stops in spans), np.zeros(len(hashes), np.int64))
    present = np.flatnonzero(counts)
    rarest = present[np.argsort(counts[present], kind="stable")][:MOST_WORDS]
    return [
        [
            segment.postings(int(starts[word]), int(stops[word]))
            for segment, (starts, stops) in zip(segments, spans, strict=True)
        ]
        for word in rarest
    ]


def _reached(postings: Sequence[Sequence[tuple[Array, Array]]], totals: Sequence[FloatArray], k: int) -> float:
    """A score that at least k chunks reach, or 0: that of the k-th best of those that hold one of the rarest words.

    Nearly all that hold frequent words alone stay below it, and need not be ordered.
    """
    held = 0
    for count, parts in enumerate(postings, 1):
        held += sum(len(places) for places, _ in parts)
        if held < k:
            continue
        rarest = zip(*postings[:count], strict=True)  # of each segment, its part of each of these words
        chosen = [np.unique(np.concatenate([places for places, _ in words])) for words in rarest]
        scores = np.concatenate([total[places] for total, places in zip(totals, chosen, strict=True)])
        if len(scores) >= k:
            return float(np.partition(scores, -k)[-k])
    return 0.0


def _best(
    segment: WordSegment, total: FloatArray, k: int, allowed: IntArray | None, least: float
) -> tuple[Array, FloatArray]:
    places = np.flatnonzero(total >= least if least else total > 0)
    if allowed is not None:
        places = places[np.isin(segment.ids[places], allowed, assume_unique=True)]
    if len(places) > k:
        scores = total[places]
        # All that equal the last one stay: ids decide between them.
        places = places[scores >= np.partition(scores, -k)[-k]]
    return segment.ids[places], total[places]
