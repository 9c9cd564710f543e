"""Which share of meaning, and which fusion, a collection is best searched by: learnt from its own texts, or from
questions whose right chunks are known.

What was chosen on few questions always looks better on them than it is. So they are halved: what is best on one half is
measured on the other, and something new is kept only if that is better than what is there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.errors import CatalogError
from app.library import Library
from app.library.catalog.records import Collection
from app.library.fusion import QUESTIONS, FusionInUse, LearntFusion, fusion_in_use
from app.library.labels import TuningQuestion, placed, read_questions
from app.library.learning import learnt_from_texts
from app.models import Models
from retriever.balance import Balance
from retriever.searcher import FUSIONS, LINEAR, SearchOptions

SHARES = tuple(tenths / 10 for tenths in range(2, 9))
DEPTH = 25  # places that a right chunk is looked for in
_SEED = 0
Scores = npt.NDArray[np.float64]  # [trials, questions, 2]: whether a right chunk is among the best k; 1 / its place


@dataclass(frozen=True)
class FusionTrial:
    """How well questions find their chunks by one share and fusion."""

    vector_share: float
    fusion: str
    recall: float  # questions with a right chunk among the best k
    mrr: float  # the mean of 1 / the place of the first right chunk


@dataclass(frozen=True)
class HeldOut:
    """Of questions that had no part in the choice: what is in use beside what would be chosen."""

    present: FusionTrial
    chosen: FusionTrial
    better: bool  # in recall or MRR; in neither worse, here and on all questions, and on neither half worse


@dataclass(frozen=True)
class Tuned:
    """What was learnt, and whether the collection keeps it."""

    collection: Collection
    chunks: int
    before: FusionInUse
    balance: Balance
    found: LearntFusion
    kept: bool
    top_k: int
    trials: tuple[FusionTrial, ...] = ()  # on all questions, the one in use first
    held_out: HeldOut | None = None

    @property
    def worthwhile(self) -> bool:
        return self.held_out is None or self.held_out.better


def tune(library: Library, models: Models, name: str, questions: Path | None = None, *, keep: bool = True) -> Tuned:
    """`keep` writes it down, so that all processes find chunks by it from their next question on.

    Raises MaintenanceError for questions that cannot be used, and CatalogError for a collection that cannot be.
    """
    labelled = None if questions is None else read_questions(questions)
    with _collection(library, name, keep) as collection:
        library.check_embedder(collection)
        chunks = library.catalog.source(collection).position().live
        if not chunks:
            raise CatalogError(
                f"collection {name!r} is empty: `ragcache ingest PATH -c {shlex.quote(name)}` puts documents into it"
            )
        balance, found = learnt_from_texts(library, models, collection, embed=True)
        before = fusion_in_use(library.settings, collection)
        tuned = Tuned(collection, chunks, before, balance, found, False, library.settings.top_k)
        if labelled is not None:
            tuned = _by_questions(library, models, tuned, placed(library, collection, labelled))
        if keep and tuned.worthwhile:
            library.catalog.collections.set_retrieval(collection, tuned.found.as_json())
            tuned = replace(tuned, kept=True)
    return tuned


@contextmanager
def _collection(library: Library, name: str, keep: bool) -> Iterator[Collection]:
    """An ingest must not learn something else meanwhile."""
    if keep:
        with library.catalog.alone_with(name) as collection:
            yield collection
    else:
        yield library.catalog.collections.get(name)


def _by_questions(library: Library, models: Models, tuned: Tuned, questions: Sequence[TuningQuestion]) -> Tuned:
    tried = candidates(tuned.before, tuned.found.vector_share)
    scores = _scores(library, models, tuned, tried, questions)
    halves = np.array_split(np.random.default_rng(_SEED).permutation(len(questions)), 2)
    held = held_out(scores, halves, tried)
    share, fusion = tried[best(scores, np.arange(len(questions)))]
    trials = tuple(_trial(*one, scores[place]) for place, one in enumerate(tried))
    figures = {
        "questions": len(questions),
        "recall": held.chosen.recall,
        "mrr": held.chosen.mrr,
        "recall_before": held.present.recall,
        "mrr_before": held.present.mrr,
    }
    learnt = LearntFusion(share, fusion, QUESTIONS, tuned.chunks, figures=figures)
    return replace(tuned, found=learnt, trials=trials, held_out=held)


def candidates(present: FusionInUse, from_texts: float) -> list[tuple[float, str]]:
    """The one in use first, then what is nearest to it: of those that are equally good the first is taken."""
    shares = sorted({*SHARES, from_texts}, key=lambda share: (abs(share - present.vector_share), share))
    fusions = sorted(FUSIONS, key=lambda fusion: fusion != LINEAR)
    tried = [(share, fusion) for fusion in fusions for share in shares if fusion == LINEAR or share in SHARES]
    return list(dict.fromkeys([(present.vector_share, present.fusion), *tried]))


def _scores(
    library: Library,
    models: Models,
    tuned: Tuned,
    tried: Sequence[tuple[float, str]],
    questions: Sequence[TuningQuestion],
) -> Scores:
    """Without a cross-encoder: it would hide what it is given."""
    scores = np.zeros((len(tried), len(questions), 2))
    with library.searching(tuned.collection) as opened:
        searcher = replace(opened, reranker=None)
        for at, one in enumerate(questions):
            vector = models.embedder.embed_query(one.question)
            for place, (share, fusion) in enumerate(tried):
                options = SearchOptions(vector_share=share, fusion=fusion)
                hits = searcher.search(one.question, max(DEPTH, tuned.top_k), options=options, vector=vector)
                first = next((rank for rank, hit in enumerate(hits, start=1) if hit.id in one.chunks), None)
                if first is not None:
                    scores[place, at] = first <= tuned.top_k, 1 / first
    return scores


def best(scores: Scores, questions: npt.NDArray[np.int64]) -> int:
    """The trial with the most of recall and MRR together on these questions."""
    return int(np.argmax(np.round(scores[:, questions].sum(axis=(1, 2)), 9)))


def held_out(scores: Scores, halves: Sequence[npt.NDArray[np.int64]], tried: Sequence[tuple[float, str]]) -> HeldOut:
    """Each half by what is best on the other one. The trial of all questions is named, since that would be kept."""
    one, other = halves
    chosen = [scores[best(scores, other), one], scores[best(scores, one), other]]
    present = [scores[0, one], scores[0, other]]
    gains = [float(np.round(new.sum() - old.sum(), 9)) for new, old in zip(chosen, present, strict=True)]
    final = tried[best(scores, np.concatenate([one, other]))]
    old, new = _trial(*tried[0], np.concatenate(present)), _trial(*final, np.concatenate(chosen))
    on_all = np.round(scores[tried.index(final)].mean(axis=0) - scores[0].mean(axis=0), 9)  # of what would be kept
    no_worse = min(*gains, new.recall - old.recall, new.mrr - old.mrr, *on_all.tolist()) >= 0
    return HeldOut(old, new, no_worse and sum(gains) > 0 and final != tried[0])


def _trial(share: float, fusion: str, scores: Scores) -> FusionTrial:
    recall, mrr = scores.mean(axis=0)
    return FusionTrial(share, fusion, float(recall), float(mrr))
