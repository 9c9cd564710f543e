"""A question to chunks: by meaning, by words, or by both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Protocol

import numpy as np

from retriever import FloatArray, Hit, IntArray, RetrieverError, Vectors
from retriever.keyword_index import KeywordIndex
from retriever.sentences import nearest
from retriever.source import Source, Where
from retriever.vector_index import VectorIndex
from retriever.vectors.base import MISSING

VECTOR, KEYWORD, HYBRID, RERANKER, SENTENCE = "vector", "keyword", "hybrid", "reranker", "sentence"
RERANK = "rerank"  # the stage, in seconds
LINEAR, RANK = "linear", "rank"
FUSIONS = (LINEAR, RANK)
_ROUNDS = 3
# Chunks whose sentences are read for a question: the likeliest so many, and more of them where more are asked for.
LEAST_READ, MOST_READ = 64, 256
MOST_DIVERSE = 256  # hits that are chosen by novelty too; further ones follow as they are
MODES = (VECTOR, KEYWORD, HYBRID)
RANK_OFFSET = 60  # of reciprocal rank fusion, as its authors chose it


class Scorer(Protocol):
    """What reranks: retriever.sentence_model.Reranker, or another model's service."""

    def score(self, question: str, texts: Sequence[str]) -> FloatArray: ...


@dataclass(frozen=True)
class SearchOptions:
    mode: str = HYBRID
    # Hits of each index that are fused; at least twice as many as are asked for, and all that are to be reranked.
    depth: int = 50
    fusion: str = LINEAR  # of what a hybrid joins: scores, or ranks
    vector_share: float = 0.5  # of the vectors' score or ranking in a hybrid; the rest is the words'
    sentence_share: float = 0.5  # of the nearest sentence in the vectors' score; the rest is the whole chunk's
    mmr: float | None = None  # share of relevance against novelty, from 0 to 1; None looks at relevance alone
    rerank_depth: int = 20  # so many of the best are read again by the reranker, where there is one

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise RetrieverError(f"unknown search mode {self.mode!r}: choose from {', '.join(MODES)}")
        if self.fusion not in FUSIONS:
            raise RetrieverError(f"unknown fusion {self.fusion!r}: choose from {', '.join(FUSIONS)}")
        if self.mmr is not None and not 0 <= self.mmr <= 1:
            raise RetrieverError(f"mmr={self.mmr}: give the share of relevance, from 0 to 1")
        for name in ("vector_share", "sentence_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise RetrieverError(f"{name}={getattr(self, name)}: give a part from 0 to 1")
        if self.depth < 1 or self.rerank_depth < 1:
            raise RetrieverError("depth and rerank_depth are numbers of chunks: give at least 1")


DEFAULTS = SearchOptions()


@dataclass(frozen=True)
class Searcher:
    """The indexes of one source. They catch up with it before each search.

    `embed` gives the vector of a question, [dimension]. `texts` gives chunks by id, in order; a reranker needs it.
    """

    source: Source
    vectors: VectorIndex
    keywords: KeywordIndex
    embed: Callable[[str], Vectors]
    reranker: Scorer | None = None
    texts: Callable[[IntArray], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.reranker is not None and self.texts is None:
            raise RetrieverError("a reranker reads the chunks: give `texts` too")

    def search(
        self,
        question: str,
        k: int,
        *,
        where: Where | None = None,
        allowed: IntArray | None = None,
        options: SearchOptions = DEFAULTS,
        vector: Vectors | None = None,
        seconds: MutableMapping[str, float] | None = None,
    ) -> list[Hit]:
        """The best k chunks, best first, among those that match `where` and are `allowed`, if given.

        Scores: for "vector" the mean of the cosines of the chunk and of its nearest sentence, BM25 for "keyword", for
        "hybrid" both, the words by what part of the question they cover; the reranker's where there is one. `vector` is
        that of the question, where the caller has it. What "rerank" takes is added to `seconds`.
        """
        if k < 1:
            raise RetrieverError(f"a search for {k} chunks finds nothing: ask for at least 1")
        self.catch_up()
        chosen = self._chosen(where, allowed)
        if chosen is not None and not len(chosen):
            return []
        hits = self._ranked(question, k, chosen, options, vector)
        if self.reranker is not None:
            started = perf_counter()
            hits = self._reranked(question, hits, max(k, options.rerank_depth))
            if seconds is not None:
                seconds[RERANK] = seconds.get(RERANK, 0.0) + perf_counter() - started
        share = 1 if options.mmr is None else options.mmr
        return self._diversified(hits, k, share) if share < 1 else hits[:k]

    def catch_up(self) -> None:
        """Both indexes to the same point, unless the source changes without pause."""
        for _ in range(_ROUNDS):
            position = self.source.position()
            self.vectors.catch_up(self.source, position)
            self.keywords.catch_up(self.source, position)
            if self.vectors.position == self.keywords.position:
                return

    @property
    def nbytes(self) -> int:
        """What both indexes take in memory, about."""
        return self.vectors.nbytes + self.keywords.nbytes

    def save(self) -> None:
        """So that the next program need not catch up. Raises RetrieverError."""
        self.vectors.save()
        self.keywords.save()

    def save_if_due(self) -> bool:
        """At the end of changes: the same, unless the next program catches up in no time; whether a file was written.
        Raises RetrieverError.
        """
        written = [index.save_if_due() for index in (self.vectors, self.keywords)]
        return any(written)

    def rebuild(self) -> None:
        """Both indexes anew from the source."""
        self.vectors.rebuild(self.source)
        self.keywords.rebuild(self.source)

    def _chosen(self, where: Where | None, allowed: IntArray | None) -> IntArray | None:
        matching = None if not where else self.source.live_ids(where)
        if matching is None or allowed is None:
            return allowed if matching is None else matching
        return np.intersect1d(matching, allowed)

    def _ranked(
        self, question: str, k: int, chosen: IntArray | None, options: SearchOptions, vector: Vectors | None
    ) -> list[Hit]:
        depth = max(options.depth, 2 * k)
        if self.reranker is not None:
            depth = max(depth, min(options.rerank_depth, self.vectors.live))
        if options.mode == KEYWORD:
            ids, scores = self.keywords.search(question, depth, chosen)
            found = {KEYWORD: _by_id(ids, scores)}
            ranked = found[KEYWORD]
        else:
            asked = self.embed(question) if vector is None else vector
            ids = self._nearest(asked, depth, chosen)
            covered = np.zeros(len(ids))
            if options.mode == HYBRID:
                ids, covered = self.keywords.covered(question, depth, chosen, ids)
            found = self._meant(asked, ids, covered, min(max(LEAST_READ, 2 * k), MOST_READ), options)
            ranked = found[VECTOR]
            if options.mode == HYBRID:
                found[KEYWORD] = {one: score for one, score in _by_id(ids, covered).items() if score}
                ranked = _fused(ranked, found[KEYWORD], options)
        wanted = len(ranked) if self.reranker is not None or options.mmr is not None else k
        return [
            Hit(chunk, score, {name: scores[chunk] for name, scores in found.items() if chunk in scores})
            for chunk, score in islice(ranked.items(), wanted)
        ]

    def _nearest(self, vector: Vectors, depth: int, chosen: IntArray | None) -> IntArray:
        (ids,), _ = self.vectors.search(vector, depth, chosen)
        found: IntArray = ids[ids != MISSING]
        return found

    def _meant(
        self, vector: Vectors, ids: IntArray, covered: FloatArray, most: int, options: SearchOptions
    ) -> dict[str, dict[int, float]]:
        """How near each chunk is: best first. The likeliest with their nearest sentence, where all of them have any."""
        whole = self.vectors.vectors(ids).astype(np.float64) @ vector.astype(np.float64)
        share = options.vector_share if options.mode == HYBRID else 1.0
        likely = whole * share + covered * (1 - share)
        read = _likeliest(likely, most if options.sentence_share else 0)
        sentence = nearest(vector, self.source.sentences(ids[read]))
        if np.isnan(sentence).any():  # chunks of an older catalog have none, and would fall behind those that have
            read, sentence = read[:0], sentence[:0]
        both = whole.copy()
        both[read] += options.sentence_share * (sentence - whole[read])
        return {VECTOR: best_first(_by_id(ids, both)), SENTENCE: _by_id(ids[read], sentence)}

    def _reranked(self, question: str, hits: Sequence[Hit], depth: int) -> list[Hit]:
        """The best by the reranker; those that it has not read are left out, since its scores are of another scale."""
        assert self.reranker is not None and self.texts is not None
        read = hits[:depth]
        texts = self.texts(_ids(read))
        distinct = list(dict.fromkeys(texts))  # copies are read once
        scores = dict(zip(distinct, self.reranker.score(question, distinct).tolist(), strict=True))
        again = [_scored(hit, scores[text], RERANKER) for hit, text in zip(read, texts, strict=True)]
        return sorted(again, key=lambda hit: (-hit.score, hit.id))

    def _diversified(self, hits: Sequence[Hit], k: int, share: float) -> list[Hit]:
        if not hits:
            return []
        # Copies stand behind all others: however many there are, they take no place of what may be new.
        vectors = self.vectors.vectors(_ids(hits))
        distinct, copies = _copies_apart(vectors)
        hits, vectors = [hits[place] for place in distinct + copies], vectors[distinct]
        # Brought to 0 … 1, so that relevance and likeness weigh alike whatever the scores are of.
        scores = np.array([hit.score for hit in hits])
        spread = float(np.ptp(scores))
        relevance = (scores - scores.min()) / spread if spread else np.ones(len(scores))
        near = min(max(MOST_DIVERSE, 2 * k), 2 * MOST_DIVERSE, len(distinct))
        order = diversify(relevance[:near].tolist(), vectors[:near], min(k, MOST_DIVERSE), share)
        chosen = set(order.tolist())
        # Whoever asks for so many looks for copies among them; comparing each with each would take minutes.
        rest = [hit for place, hit in enumerate(hits) if place not in chosen]
        return [*(hits[place] for place in order), *rest][:k]


def _copies_apart(vectors: Vectors) -> tuple[list[int], list[int]]:
    """The places of the first of all that are equal, and those of their copies, ascending."""
    first: dict[bytes, int] = {}
    for place, vector in enumerate(vectors):
        first.setdefault(vector.tobytes(), place)
    distinct = list(first.values())
    return distinct, sorted(set(range(len(vectors))).difference(distinct))


def _likeliest(scores: FloatArray, most: int) -> IntArray:
    """Their places, ascending."""
    if len(scores) <= most:
        return np.arange(len(scores))
    return np.sort(np.argpartition(-scores, most)[:most])


def _ids(hits: Sequence[Hit]) -> IntArray:
    return np.array([hit.id for hit in hits], dtype=np.int64)


def _scored(hit: Hit, score: float, name: str) -> Hit:
    scores: Mapping[str, float] = {**hit.scores, name: score}
    return Hit(hit.id, score, scores)


def _by_id(ids: IntArray, scores: FloatArray) -> dict[int, float]:
    return dict(zip(ids.tolist(), scores.tolist(), strict=True))


def _fused(meant: Mapping[int, float], covered: Mapping[int, float], options: SearchOptions) -> dict[int, float]:
    share = options.vector_share
    if options.fusion == RANK:
        return fuse([list(meant), list(best_first(covered))], [2 * share, 2 * (1 - share)])
    return best_first({one: share * score + (1 - share) * covered.get(one, 0.0) for one, score in meant.items()})


def fuse(rankings: Sequence[Sequence[int]], weights: Sequence[float] | None = None) -> dict[int, float]:
    """Reciprocal rank fusion: a chunk scores 1 / (60 + rank) in each ranking that has it. Best first, then by id."""
    totals: dict[int, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, chunk in enumerate(ranking, start=1):
            totals[chunk] = totals.get(chunk, 0.0) + weight / (RANK_OFFSET + rank)
    return best_first(totals)


def best_first(scores: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0])))


def diversify(relevance: Sequence[float], vectors: Vectors, k: int, share: float) -> IntArray:
    """Maximal marginal relevance: places of the k chosen, in the order of choice.

    Each is the one with the most of share · relevance − (1 − share) · likeness to the closest of those chosen before.
    A share of 1 keeps the order of relevance.
    """
    left = np.asarray(relevance, dtype=np.float64)
    closest = np.full(len(left), -np.inf)
    chosen: list[int] = []
    free = np.ones(len(left), dtype=bool)
    while len(chosen) < min(k, len(left)):
        likeness = np.where(np.isfinite(closest), closest, 0.0)
        gain = np.where(free, share * left - (1 - share) * likeness, -np.inf)
        best = int(np.argmax(gain))
        chosen.append(best)
        free[best] = False
        closest = np.maximum(closest, (vectors @ vectors[best]).astype(np.float64))
    return np.array(chosen, dtype=np.int64)
