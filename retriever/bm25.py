"""An inverted index in segments, and BM25 over them. A segment is arrays that never change, and a mark for each chunk
that is gone.

Postings of a word stand together, in the order of the chunks. Words are 64-bit hashes: among ten million words the
chance that any two share one is 0.000003. The numbers are those of Okapi BM25 with an idf that is never negative.
Words of a text are as they are indexed and as they are asked for.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from retriever import FloatArray, IntArray

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana and Han.
_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs and the like, which stand amid words and are no letters to Python: of Indic scripts and of those of _RUN.
_SIGNS = (
    "\u0900-\u0963\u0981-\u09e3\u0a01-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83"
    "\u0cbc-\u0d4d\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u102b-\u103e\u1056-\u109d\u17b4-\u17d3"
)
_WORD = re.compile(f"(?:[^\\W_]|[{_SIGNS}])+")
_ASCII_WORD = re.compile("[a-z0-9]+")
_PIECE = re.compile(f"[{_RUN}]+|[^{_RUN}]+")
_IN_RUN = re.compile(f"[{_RUN}]")
# Characters without width, and with a soft hyphen the end of the line that it stands at.
_UNSEEN = re.compile(r"\u00ad(?:\r?\n[ \t]*+)?|[\u200c\u200d\u2060\ufeff]")
_BROKEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)[-\u2010]\r?\n[ \t]*+([^\W\d_]++)")
# Also the points of Hebrew and Arabic, which most texts leave out; vowel signs of other scripts stay.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]+"
)

# English words that stand in most texts and tell nothing of what is asked.
_STOP = (
    "a about after all also am an and any are as at be because been before being between both but by can could did do "
    "does doing during each for from further had has have having he her here hers him his how i if in into is it its "
    "itself just me more most my no nor not now of off on once only or other our out over own same she should so some "
    "such than that the their them then there these they this those through to too under until up very was we were "
    "what when where which while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())
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
MOST_WORDS = 64  # of a question; the rarest are taken, which weigh most


def words(text: str) -> list[str]:
    """In order, folded: no case, no accents, no compatibility forms. Where a script has no spaces, a run of it becomes
    its characters and its pairs of neighbours. What a hyphen parts at the end of a line is there whole and in parts:
    the hyphen may be the word's own."""
    if "\n" in text:
        text = _BROKEN.sub(r"\1\2 \1 \2", text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = unicodedata.normalize(
        "NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", _UNSEEN.sub("", text)))
    ).casefold()
    found = _WORD.findall(folded)
    return [piece for word in found for piece in _pieces(word)] if _IN_RUN.search(folded) else found


def asked_words(text: str) -> list[str]:
    """Distinct, without stop words unless there is nothing else."""
    distinct = list(dict.fromkeys(words(text)))
    return [word for word in distinct if word not in STOP_WORDS] or distinct


def _pieces(word: str) -> list[str]:
    pieces: list[str] = []
    for part in _PIECE.findall(word):
        if _IN_RUN.match(part):
            pieces += [*part, *(part[at : at + 2] for at in range(len(part) - 1))]
        else:
            pieces.append(part)
    return pieces


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
    numbers: list[int] = []  # of all words of all texts
    lengths = np.zeros(len(texts), dtype=TYPES["lengths"])
    for place, text in enumerate(texts):
        found = words(text)
        lengths[place] = len(found)
        numbers.extend(map(vocabulary.__getitem__, found))
    hashes = np.array([hashed(word) for word in vocabulary], dtype=TYPES["hashes"])
    ordered, rank = np.unique(hashes, return_inverse=True)
    owners = np.repeat(np.arange(len(texts)), lengths)
    keys, times = np.unique(rank[np.array(numbers, dtype=np.int64)] * len(texts) + owners, return_counts=True)
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
    return WordSegment(**{name: np.ascontiguousarray(array, dtype=TYPES[name]) for name, array in arrays.items()})


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
    for taken, parts in enumerate(postings, 1):
        held += sum(len(places) for places, _ in parts)
        if held < k:
            continue
        rarest = zip(*postings[:taken], strict=True)  # of each segment, its part of each of these words
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
