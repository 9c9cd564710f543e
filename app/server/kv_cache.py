"""The KV cache: what is in it, and what is done to it by hand. A caller sees the figures of his collections, and those
of all together where he may see all and administer them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.answering.quality import Level
from app.cachecare import CollectionShare, shares
from app.cachecare.eviction import evict as eviction
from app.library import Library
from app.library.catalog.records import Collection
from app.library.kv import FileTally, has_kv
from app.library.pinning import pin_collection, unpin_collection
from app.models import Models
from app.models.cores import release_helpers
from app.server import jobs
from app.server.callers import Asking, Caller
from app.server.jobs import JobCard
from app.server.service import Service, Serving
from ragcache.store.eviction import order_names
from ragcache.store.findings import TierStats
from ragcache.store.folder import CacheFolder

router = APIRouter(tags=["KV cache"])
ACTIONS = "/v1/collections/{name}/cache"
LINKED: Mapping[Level, Literal["asked", "more", "off"]] = {
    Level.ASKED: "asked",
    Level.MORE: "more",
    Level.OFF: "off",
}
Work = Callable[[Library, Models, Collection, bool], FileTally]


class CachedCollection(BaseModel):
    """For the model that serves. KV of texts that several collections have counts in each of them. A key of some
    collections is told of the KV within their borders alone.
    """

    name: str
    chunks: int  # distinct ones
    cached: int  # of them, with KV that serves this caller
    entries: int
    bytes: int  # on the disk
    pinned_bytes: int


class CacheTier(BaseModel):
    """Since the server was started."""

    tier: str
    entries: int
    bytes: int
    budget: int | None
    order: str  # what goes first when it is full
    hits: int
    misses: int
    evictions: int
    quarantined: int
    displaced: int
    declined: int  # for want of room that was worth less than what has it


class CollectionQuality(BaseModel):
    """How near its answers are to those without the cache, as some of them were measured since the server began."""

    collection: str
    kl: float | None  # nats a token, the mean of the last ones
    measured: int
    linked: Literal["asked", "more", "off"]  # as the settings say, with more repair, not at all
    told: str  # what its users are told; "" where it is as asked


class CacheState(BaseModel):
    object: Literal["cache"] = "cache"
    model: str
    model_kl: float | None  # of the built-in prompts; None where nobody has measured it
    kv: str  # when it is computed: RAGCACHE_KV
    codec: str  # of files
    collections: list[CachedCollection]
    quality: list[CollectionQuality]
    tiers: list[CacheTier] | None  # None for who may not see all


class TendedCache(BaseModel):
    """What was done to the KV of a collection, and to how much of it, or of that within its border."""

    collection: str
    done: Literal["evicted", "pinned", "unpinned"]
    entries: int
    bytes: int


@router.get("/v1/cache")
def cache(service: Serving, caller: Asking) -> CacheState:
    caller.check("read")
    settings, library = service.settings, service.pipeline.library
    seen = [one for one in service.catalog.collections.all() if caller.may_see(one)]
    items = CacheFolder(settings.kv_folder).items() if has_kv(settings) else ()
    found = shares(library, service.pipeline.models, items, seen, bordered=caller.bordered)
    orders = order_names(settings.eviction)
    return CacheState(
        model=service.model,
        model_kl=sound.kl if (sound := service.pipeline.gate.soundness) else None,
        kv=settings.kv,
        codec=settings.codec,
        collections=[card_of(one) for one in found],
        quality=_quality(service, seen),
        tiers=[_tier(one, orders[one.tier]) for one in service.tiers()] if caller.runs_all else None,
    )


def _quality(service: Service, seen: Sequence[Collection]) -> list[CollectionQuality]:
    names = {one.id: one.name for one in seen}
    return [
        CollectionQuality(
            collection=names[one.collection],
            kl=one.kl,
            measured=one.measured,
            linked=LINKED[one.level],
            told=one.told,
        )
        for one in service.pipeline.gate.quality.states()
        if one.collection in names
    ]


@router.post(f"{ACTIONS}/warm", status_code=202)
def warm(name: str, service: Serving, caller: Asking) -> JobCard:
    """A job computes what its chunks lack to serve this caller. 409 where one does that already."""
    caller.check("ingest")
    collection = caller.collection(service.catalog, name)
    return jobs.card_of(service.ingests.warm(collection, caller.border_of(collection), caller.id), collection, caller)


@router.post(f"{ACTIONS}/evict")
def evict(name: str, service: Serving, caller: Asking) -> TendedCache:
    """What is pinned stays, and what others have too. 409 while an ingest works on the collection."""
    caller.check("ingest")
    return _tended(name, service, caller, eviction, "evicted")


@router.put(f"{ACTIONS}/pin")
def pin(name: str, service: Serving, caller: Asking) -> TendedCache:
    """All KV that the collection has by now makes no room for other KV."""
    caller.check("admin")
    return _tended(name, service, caller, pin_collection, "pinned")


@router.delete(f"{ACTIONS}/pin")
def unpin(name: str, service: Serving, caller: Asking) -> TendedCache:
    caller.check("admin")
    return _tended(name, service, caller, unpin_collection, "unpinned")


def _tended(
    name: str, service: Service, caller: Caller, work: Work, done: Literal["evicted", "pinned", "unpinned"]
) -> TendedCache:
    collection = caller.collection(service.catalog, name)
    try:
        tally = work(service.pipeline.library, service.pipeline.models, collection, caller.bordered)
    finally:
        release_helpers()
    return TendedCache(collection=collection.name, done=done, entries=tally.entries, bytes=tally.nbytes)


def card_of(share: CollectionShare) -> CachedCollection:
    return CachedCollection(
        name=share.collection.name,
        chunks=share.chunks,
        cached=share.cached,
        entries=share.kv.entries,
        bytes=share.kv.nbytes,
        pinned_bytes=share.pinned.nbytes,
    )


def _tier(stats: TierStats, order: str) -> CacheTier:
    values = {"bytes" if name == "nbytes" else name: value for name, value in vars(stats).items()}
    return CacheTier(**values, order=order)
