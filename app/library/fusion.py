"""How much meaning and words count in the search of a collection: as the settings say, else as it has learnt, else half
each.

A share that was learnt stands in the collection's row, which every question reads, so all processes have the same one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.library.catalog.records import Collection
from app.settings import RetrievalMode, Settings
from retriever import RetrieverError
from retriever.balance import FEWEST_CHUNKS
from retriever.searcher import DEFAULTS, SearchOptions

By = Literal["collection", "questions"]
COLLECTION: By = "collection"
QUESTIONS: By = "questions"
SETTING, DEFAULT = "setting", "default"
SAMPLED = "sampled"  # the figure that says by how many chunks it was learnt
MUCH_LESS = 1 / 2  # of a sample
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearntFusion:
    """What a collection has learnt of its search."""

    vector_share: float
    fusion: str
    by: By
    chunks: int  # of the collection when its texts were last asked
    retired: int | None = None  # the highest number of its retirements then; None where nobody knows
    figures: Mapping[str, float] = field(default_factory=dict)  # that it was learnt by, for people

    def as_json(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name != "figures" and value is not None}
        return {**kept, **self.figures}

    @property
    def sampled(self) -> float | None:
        """By how many chunks it was learnt; None where that is not known."""
        found = self.figures.get(SAMPLED)
        return found if isinstance(found, int | float) else None

    def tells_less(self, kept: LearntFusion) -> bool:
        """Whether it comes of too few chunks, or of many fewer than what is kept."""
        sampled, before = self.sampled or 0, kept.sampled or 0
        return sampled < FEWEST_CHUNKS or sampled < before * MUCH_LESS


@dataclass(frozen=True)
class FusionInUse:
    """What a question meets; `by` says where its share comes from."""

    vector_share: float
    fusion: str
    by: str


def learnt(collection: Collection) -> LearntFusion | None:
    """None also for what another version has written in another form, which stays until chunks are written."""
    kept = collection.retrieval
    if kept is None:
        return None
    try:
        rest = dict(kept)
        share, fusion, by, chunks = (rest.pop(name) for name in ("vector_share", "fusion", "by", "chunks"))
        retired = rest.pop("retired", None)
        SearchOptions(vector_share=share, fusion=fusion)
        if by not in (COLLECTION, QUESTIONS) or not isinstance(chunks, int) or not isinstance(retired, int | None):
            raise ValueError(f"by={by!r}, chunks={chunks!r}, retired={retired!r}")
    except (LookupError, TypeError, ValueError, RetrieverError) as error:
        log.warning("what collection %r has learnt of its search cannot be read (%s)", collection.name, error)
        return None
    return LearntFusion(share, fusion, by, chunks, retired, rest)


def fusion_in_use(settings: Settings, collection: Collection) -> FusionInUse:
    found = learnt(collection)
    share, by = (found.vector_share, str(found.by)) if found else (DEFAULTS.vector_share, DEFAULT)
    if settings.vector_share is not None:
        share, by = settings.vector_share, SETTING
    return FusionInUse(share, settings.fusion or (found.fusion if found else DEFAULTS.fusion), by)


def search_options(
    settings: Settings, collection: Collection, mmr: float | None = None, mode: RetrievalMode | None = None
) -> SearchOptions:
    """Of a question to the collection, as its row is now."""
    used = fusion_in_use(settings, collection)
    return SearchOptions(
        mode=mode or settings.retrieval,
        fusion=used.fusion,
        vector_share=used.vector_share,
        mmr=settings.mmr if mmr is None else mmr,
        rerank_depth=settings.rerank_depth,
    )


def is_due(
    collection: Collection, live: int, lost: Callable[[int], int], *, wrote: bool = True, anew: bool = False
) -> bool:
    """Whether its own texts should tell: for the first time, or as so many chunks are new as there were then, or in any
    case with `anew`. What questions have told stays, and what cannot be read stays unless this ingest `wrote` chunks: a
    newer version may have learnt it. `lost` tells how many of its chunks went after that retirement.
    """
    found = learnt(collection)
    if not live or (found is not None and found.by != COLLECTION):
        return False
    if found is None:
        return wrote or anew or collection.retrieval is None
    if anew:
        return True
    gone = 0 if found.retired is None else lost(found.retired)
    return live - found.chunks + gone >= found.chunks
