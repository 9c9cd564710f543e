"""What the cache was good for, over time and by chunk.

All of it is of collections: a caller is told of those that he may see, and of what was asked over these alone, by
whomever. Of a text that others have too, nothing that they did counts.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.cachecare.chunks import KeptChunks
from app.library.catalog.cache_history import DAY, HOUR, KEPT, MINUTE
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import CacheTally, ReusedChunk
from app.library.originals import SCHEME
from app.models.cores import release_helpers
from app.server.callers import Asking, Caller
from app.server.events import sound
from app.server.service import Service, Serving
from ragcache.report import PREFIX
from ragcache.store.findings import TIERS

router = APIRouter(prefix="/v1/cache", tags=["KV cache"])
Step = Literal["minute", "hour", "day"]
SECONDS: dict[Step, int] = {"minute": MINUTE, "hour": HOUR, "day": DAY}
Named = Annotated[str | None, Query(max_length=1000)]


class Saving(BaseModel):
    """By how many seconds first tokens were sooner than without cache, all together. Below zero they were later."""

    answers: int  # that this is known of
    seconds: float


class CacheUse(BaseModel):
    """Tokens are those of chunks in the prompts of answers that might use the cache."""

    answers: int
    reused: int
    repaired: int  # brought, and computed again to fit where they stand
    computed: int
    hit_rate: float | None  # the share of them that was reused or repaired; None where there were none
    tiers: dict[str, int]  # of the reused ones, where they came from
    ttft_s: float  # all together
    estimated: Saving  # by the running rates of the engine
    measured: Saving  # against the same prompt without cache
    captured: int | None  # tokens whose KV was computed to be kept, by ingests and warming
    captured_s: float | None  # for a key of some collections both are None: they tell what others have already


class CachePoint(CacheUse):
    start: int


class CacheTimeline(BaseModel):
    """The oldest comes first. Steps without anything are left out."""

    object: Literal["cache_history"] = "cache_history"
    step: Step
    seconds: int  # of a step
    since: int
    data: list[CachePoint]
    total: CacheUse


class ReusedCard(BaseModel):
    """`tiers` and `bytes` (on the disk, or else in memory) are of KV that serves this caller."""

    collection: str
    document: int
    name: str  # of the document
    title: str
    chunk: int
    start: int
    end: int
    text: str  # its beginning
    tokens: int
    uses: int
    reused: int  # tokens, in all uses together
    used: int  # the last time
    tiers: list[str]
    bytes: int


class ReusedList(BaseModel):
    """The chunk that served most answers comes first."""

    object: Literal["list"] = "list"
    data: list[ReusedCard]


@router.get("/history")
def history(service: Serving, caller: Asking, step: Step = "hour", collection: Named = None) -> CacheTimeline:
    """Of one collection, or of all that the caller may see: 180 minutes, 14 days by hours, or 400 days."""
    seconds = SECONDS[step]
    seen = _seen(service, caller, collection)
    since = (int(time.time()) // seconds - KEPT[seconds] + 1) * seconds
    service.history.write()
    found = service.catalog.cache_history.points(seconds, since, [one.id for one in seen])
    points = [CachePoint(start=one.start, **use_of(one.tally, caller).model_dump()) for one in found]
    total = use_of(sum((one.tally for one in found), CacheTally()), caller)
    return CacheTimeline(step=step, seconds=seconds, since=since, data=points, total=total)


@router.get("/reused")
def reused(
    service: Serving, caller: Asking, limit: Annotated[int, Query(ge=1, le=100)] = 20, collection: Named = None
) -> ReusedList:
    seen = {one.id: one for one in _seen(service, caller, collection)}
    service.history.write()
    found = service.catalog.cache_history.reused(limit, list(seen))
    kept = KeptChunks(service.pipeline.models, loaded=service.keeps_kv)
    try:
        return ReusedList(data=[_card(one, seen[one.collection_id], kept, caller) for one in found])
    finally:
        release_helpers()


def use_of(tally: CacheTally, caller: Caller) -> CacheUse:
    served = tally.reused + tally.repaired
    tokens = served + tally.computed
    return CacheUse(
        answers=tally.answers,
        reused=tally.reused,
        repaired=tally.repaired,
        computed=tally.computed,
        hit_rate=served / tokens if tokens else None,
        tiers={name: getattr(tally, name) for name in (*TIERS, PREFIX)},
        ttft_s=tally.first_s,
        estimated=Saving(answers=tally.estimated, seconds=tally.estimated_s),
        measured=Saving(answers=tally.compared, seconds=tally.compared_s),
        captured=None if caller.bordered else tally.captured,
        captured_s=None if caller.bordered else tally.captured_s,
    )


def _seen(service: Service, caller: Caller, name: str | None) -> list[Collection]:
    caller.check("read")
    if name is not None:
        return [caller.collection(service.catalog, name)]
    return [one for one in service.catalog.collections.all() if caller.may_see(one)]


def _card(one: ReusedChunk, collection: Collection, kept: KeptChunks, caller: Caller) -> ReusedCard:
    tiers, nbytes = kept.of(one.token_hash, caller.border_of(collection))
    return ReusedCard(
        collection=sound(collection.name),
        document=one.document_id,
        name=sound(one.source.removeprefix(SCHEME)),
        title=sound(one.title),
        chunk=one.chunk_id,
        start=one.start,
        end=one.end,
        text=sound(one.text),
        tokens=one.tokens,
        uses=one.uses,
        reused=one.reused,
        used=int(one.used.timestamp()),
        tiers=tiers,
        bytes=nbytes,
    )
