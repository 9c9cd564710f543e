"""How much meaning and words count in the search of a collection: as the settings say, else as it has learnt, else half
each.

A share that was learnt stands in the collection's row, which every question reads, so all processes have the same one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.library.catalog.records import Collection
from app.settings import Settings
from retriever import RetrieverError
from retriever.searcher import DEFAULTS, SearchOptions
from retriever.source import Position

By = Literal["collection", "questions"]
COLLECTION: By = "collection"
QUESTIONS: By = "questions"
SETTING, DEFAULT = "setting", "default"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearntFusion:
    """What a collection has learnt of its search."""

    vector_share: float
    fusion: str
    by: By
    chunks: int  # of the collection then
    retired: int = 0  # chunks that it had lost by then
    figures: Mapping[str, float] = field(default_factory=dict)  # that it was learnt by, for people

    def as_json(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name != "figures"}
        return {**kept, **self.figures}


@dataclass(frozen=True)
class FusionInUse:
    """What a question meets; `by` says where its share comes from."""

    vector_share: float
    fusion: str
    by: str


def learnt(collection: Collection) -> LearntFusion | None:
    """None also for what another version has written in another form: it is learnt anew when it is due."""
    kept = collection.retrieval
    if kept is None:
        return None
    try:
        rest = dict(kept)
        share, fusion, by, chunks = (rest.pop(name) for name in ("vector_share", "fusion", "by", "chunks"))
        retired = rest.pop("retired", 0)
        SearchOptions(vector_share=share, fusion=fusion)
        if by not in (COLLECTION, QUESTIONS) or not isinstance(chunks, int) or not isinstance(retired, int):
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


def search_options(settings: Settings, collection: Collection, mmr: float | None = None) -> SearchOptions:
    """Of a question to the collection, as its row is now."""
    used = fusion_in_use(settings, collection)
    return SearchOptions(
        mode=settings.retrieval,
        fusion=used.fusion,
        vector_share=used.vector_share,
        mmr=settings.mmr if mmr is None else mmr,
        rerank_depth=settings.rerank_depth,
    )


def is_due(collection: Collection, now: Position, anew: bool = False) -> bool:
    """Whether its own texts should tell: for the first time, or as so many chunks are new as there were then, or in any
    case with `anew`. What questions have told stays.
    """
    found = learnt(collection)
    if not now.live or (found is not None and found.by != COLLECTION):
        return False
    return found is None or anew or now.live - found.chunks + now.retired - found.retired >= found.chunks
