"""An inverted index in segments, and BM25 over them. A segment is arrays that never change, and a mark for each chunk
that is gone.

Postings of a word stand together, in the order of the chunks. Words are 64-bit hashes: among ten million words the
chance that any two share one is 0.000003. The numbers are those of Okapi BM25 with an idf that is never negative.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from retriever import FloatArray, IntArray
from retriever.words import Term, language_mark, terms

Array = npt.NDArray[Any]
_MOST_TIMES = np.iinfo(np.uint16).max  # a word more often in one chunk counts as this often; BM25 is level long before
TYPES: Mapping[str, str] = {
    "ids": "<i8",
    "lengths": "<u4",
    "hashes": "<u8",
    "starts": "<i8",
    "places": "<u4",
    "times": "<u2",
    "alive": "|b1",
}
K1 = 1.2
B = 0.75
_NOWHERE = np.empty(0, TYPES["places"])
MOST_WORDS = 64  # of a question; the rarest are taken, which weigh most


@dataclass
class WordSegment:
    ids: Array  # [chunks] ascending
    lengths: Array  # [chunks] words
    hashes: Array  # [distinct words] ascending
    starts: Array  # [distinct words + 1] into the postings
    places: Array  # [postings] which chunk: a place in ids
    times: Array  # [postings] how often the word stands in it
    alive: Array  # [chunks]; alone is written to

    def __post_init__(self) -> None:
        self.live = int(self.alive.sum())
        self.live_words = int(self.lengths[self.alive].sum(dtype=np.int64))

    @property
    def dead(self) -> int:
        return len(self.ids) - self.live

    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def remove(self, ids: IntArray) -> None:
        """What is not here, or gone already, is left alone."""
        chosen = np.isin(self.ids, ids)
        if chosen.any():
            self.alive[chosen] = False
            self.__post_init__()

    def spans(self, asked: Array) -> tuple[Array, Array]:
        """Where the postings of words start and stop, by their hashes; nowhere for a word that is not here."""
        if not len(self.hashes):
            return np.zeros(len(asked), np.int64), np.zeros(len(asked), np.int64)
        at = np.minimum(np.searchsorted(self.hashes, asked), len(self.hashes) - 1)
        stops = np.where(self.hashes[at] == asked, self.starts[at + 1], self.starts[at])
        return self.starts[at], stops

    def postings(self, start: int, stop: int) -> tuple[Array, Array]:
        """Places and times of the live chunks in a span."""
        places, times = self.places[start:stop], self.times[start:stop]
        if self.dead:
            kept = self.alive[places]
            return places[kept], times[kept]
        return places, times


def hashed(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


def build(ids: IntArray, texts: Sequence[str]) -> WordSegment:
    """Of chunks in the order of their ids."""
    vocabulary: dict[str, int] = defaultdict(count().__next__)
    numbers: list[list[int]] = []  # of all terms of each text
    lengths = np.zeros(len(texts), dtype=TYPES["lengths"])
    for place, text in enumerate(texts):
        told = terms(text)
        lengths[place] = len(told.stems)
        numbers.append([vocabulary[term] for term in (*told.stems, *told.more, *language_mark(told.language))])
    hashes = np.array([hashed(word) for word in vocabulary], dtype=TYPES["hashes"])
    ordered, rank = np.unique(hashes, return_inverse=True)
    owners = np.repeat(np.arange(len(texts)), [len(one) for one in numbers])
    flat = np.fromiter(chain.from_iterable(numbers), dtype=np.int64)
    keys, times = np.unique(rank[flat] * len(texts) + owners, return_counts=True)
    return _segment(ids, lengths, ordered, keys // max(len(texts), 1), keys % max(len(texts), 1), times)


def merge(segments: Sequence[WordSegment]) -> WordSegment:
    """One segment of the live chunks of several, in this order."""
    firsts = np.cumsum([0, *(segment.live for segment in segments)])
    ordered = np.unique(np.concatenate([segment.hashes for segment in segments]))
    ranks, places, times = [], [], []
    for first, segment in zip(firsts, segments, strict=False):
        kept = segment.alive[segment.places]
        per_word = np.diff(segment.starts)
        rank = np.repeat(np.searchsorted(ordered, segment.hashes).astype(np.int32), per_word)
        ranks.append(rank[kept])
        places.append((np.cumsum(segment.alive) - 1 + first).astype(np.uint32)[segment.places[kept]])
        times.append(segment.times[kept])
    rank = np.concatenate(ranks)
    order = np.argsort(rank, kind="stable")  # runs that ascend already: merged, not sorted
    ids = np.concatenate([segment.ids[segment.alive] for segment in segments])
    lengths = np.concatenate([segment.lengths[segment.alive] for segment in segments])
    return _segment(ids, lengths, ordered, rank[order], np.concatenate(places)[order], np.concatenate(times)[order])


def compacted(segment: WordSegment) -> WordSegment:
    """Of its live chunks: the order stays, so nothing is sorted."""
    if not segment.live:
        return merge([segment])
    kept = segment.alive[segment.places]
    per_word = np.add.reduceat(kept, segment.starts[:-1], dtype=np.int64)
    present = per_word > 0
    renumbered = (np.cumsum(segment.alive) - 1).astype(TYPES["places"])
    arrays = {
        "ids": segment.ids[segment.alive],
        "lengths": segment.lengths[segment.alive],
        "hashes": segment.hashes[present],
        "starts": np.concatenate([[0], np.cumsum(per_word[present])]),
        "places": renumbered[segment.places[kept]],
        "times": segment.times[kept],
    }
    arrays["alive"] = np.ones(len(arrays["ids"]))
    return _made(arrays)


def _made(arrays: Mapping[str, Array]) -> WordSegment:
    """Of arrays of whatever numbers."""
    return WordSegment(**{name: np.ascontiguousarray(array, dtype=TYPES[name]) for name, array in arrays.items()})


def _segment(ids: Array, lengths: Array, hashes: Array, ranks: Array, places: Array, times: Array) -> WordSegment:
    """From postings in order, each with the rank of its word; words without postings are left out."""
    present, firsts = np.unique(ranks, return_index=True)
    arrays = {
        "ids": ids,
        "lengths": lengths,
        "hashes": hashes[present],
        "starts": np.append(firsts, len(ranks)),
        "places": places,
        "times": np.minimum(times, _MOST_TIMES),
        "alive": np.ones(len(ids)),
    }
    return _made(arrays)


def search(
    segments: Sequence[WordSegment], asked: Sequence[Term], k: int, allowed: IntArray | None
) -> tuple[IntArray, FloatArray]:
    """The best k chunks that hold anything of what is asked, best first and then by id. `allowed` ascends."""
    return score(segments, asked).best(k, allowed)


@dataclass(frozen=True)
class Scored:
    """All chunks by one question."""

    segments: Sequence[WordSegment]
    totals: Sequence[FloatArray]  # of each segment its chunks' scores
    most: float  # what a chunk would score that held all that was asked, over and over
    rarest: Sequence[Sequence[Array]]  # of what was asked, the rarest first, the places in each segment

    def best(self, k: int, allowed: IntArray | None = None) -> tuple[IntArray, FloatArray]:
        least = self._reached(k) if allowed is None else 0.0
        parts = zip(self.segments, self.totals, strict=True)
        found = [_best(segment, total, k, allowed, least) for segment, total in parts]
        ids = np.concatenate([ids for ids, _ in found]) if found else np.empty(0, np.int64)
        scores = np.concatenate([scores for _, scores in found]) if found else np.empty(0)
        order = np.lexsort((ids, -scores))[:k]
        return ids[order].astype(np.int64), scores[order]

    def of(self, ids: IntArray) -> FloatArray:
        """0 for chunks that are not here."""
        scores = np.zeros(len(ids))
        for segment, total in zip(self.segments, self.totals, strict=True):
            if len(segment.ids):
                at = np.minimum(np.searchsorted(segment.ids, ids), len(segment.ids) - 1)
                scores += np.where(segment.ids[at] == ids, total[at], 0.0)
        return scores

    def _reached(self, k: int) -> float:
        """A score that at least k chunks reach, or 0: that of the k-th best of those that hold one of the rarest words.

        Nearly all that hold frequent words alone stay below it, and need not be ordered.
        """
        held = 0
        for taken, parts in enumerate(self.rarest, 1):
            held += sum(map(len, parts))
            if held < k:
                continue
            of_segments = zip(*self.rarest[:taken], strict=True)
            chosen = [np.unique(np.concatenate(places)) for places in of_segments]
            scores = np.concatenate([total[places] for total, places in zip(self.totals, chosen, strict=True)])
            if len(scores) >= k:
                return float(np.partition(scores, -k)[-k])
        return 0.0


def score(segments: Sequence[WordSegment], asked: Sequence[Term]) -> Scored:
    live = sum(segment.live for segment in segments)
    live_words = sum(segment.live_words for segment in segments)
    if not live_words:
        return Scored((), (), 0.0, ())
    mean_words = live_words / live
    totals = [np.zeros(len(segment.ids)) for segment in segments]
    most = 0.0
    found = _postings(segments, asked)
    for term in found:
        weight = idf(live, term.holding) * (K1 + 1)
        most += weight
        for segment, total, (places, times) in zip(segments, totals, term.postings, strict=True):
            lengths = segment.lengths[places] * (K1 * B / mean_words) + K1 * (1 - B)
            total[places] += weight * times / (times + lengths)
    return Scored(segments, totals, most, [[places for places, _ in term.postings] for term in found if term.holding])


def idf(live: int, holding: int) -> float:
    return math.log(1 + (live - holding + 0.5) / (holding + 0.5))


@dataclass(frozen=True)
class _Found:
    holding: int  # chunks
    postings: Sequence[tuple[Array, Array]]  # of each segment: the chunks that hold it, each once, and how often


def _postings(segments: Sequence[WordSegment], asked: Sequence[Term]) -> list[_Found]:
    """Of each thing asked, its postings in each segment, the rarest first and those that are nowhere last; in an order
    that the question's own does not change.
    """
    ordered = sorted({tuple(sorted({hashed(one) for one in term})) for term in asked})
    found = [_of_term(segments, np.array(hashes, dtype=np.uint64)) for hashes in ordered]
    there = sorted((one for one in found if one.holding), key=lambda one: one.holding)
    return [*there, *(one for one in found if not one.holding)][:MOST_WORDS]


def _of_term(segments: Sequence[WordSegment], hashes: Array) -> _Found:
    """A chunk holds it as often as it holds any of the words that stand for it."""
    postings = []
    for segment in segments:
        starts, stops = segment.spans(hashes)
        parts = [segment.postings(int(a), int(b)) for a, b in zip(starts, stops, strict=True) if b > a]
        postings.append(parts[0] if len(parts) == 1 else _added(parts))
    return _Found(sum(len(places) for places, _ in postings), postings)


def _added(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not parts:
        return _NOWHERE, _NOWHERE
    places, rank = np.unique(np.concatenate([places for places, _ in parts]), return_inverse=True)
    return places, np.bincount(rank, np.concatenate([times for _, times in parts]), len(places))


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
