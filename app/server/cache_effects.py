"""One collection's KV: what warming, evicting and pinning it would do, and what it costs against what it saves."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.cachecare.effects import CacheEffects, EvictionEffect, PaidBack, PinningEffect, TimeTold, WarmingEffect
from app.models.cores import release_helpers
from app.server.cache_history import CacheUse, use_of
from app.server.callers import Asking
from app.server.kv_cache import CachedCollection, card_of
from app.server.service import Serving

router = APIRouter(tags=["KV cache"])


class ToWarm(BaseModel):
    """What is missing for this caller. Bytes are reckoned."""

    chunks: int
    tokens: int
    bytes: int
    takes: TimeTold


class ToEvict(BaseModel):
    entries: int
    bytes: int
    tokens: int  # of the chunks that it is of
    again: TimeTold  # that computing them again takes


class ToPin(BaseModel):
    """`pinned`: bytes of all pins then, of `most` that may be; None for a key of some collections."""

    entries: int
    bytes: int
    pinned: int | None
    most: int


class TendableCache(BaseModel):
    """What this caller may not do is None."""

    object: Literal["collection_cache"] = "collection_cache"
    collection: CachedCollection
    warm: ToWarm | None
    evict: ToEvict | None
    pin: ToPin | None
    cost: PaidBack
    ever: CacheUse


@router.get("/v1/collections/{name}/cache")
def effects(name: str, service: Serving, caller: Asking) -> TendableCache:
    """Nothing is changed."""
    caller.check("read")
    collection = caller.collection(service.catalog, name)
    service.history.write()
    library, models = service.pipeline.library, service.pipeline.models
    found = CacheEffects(library, models, collection, caller.border_of(collection))
    tends, pins = caller.may("ingest"), caller.may("admin")
    try:
        return TendableCache(
            collection=card_of(found.share()),
            warm=_warm(found.warming()) if tends and service.settings.kv != "off" else None,
            evict=_evict(found.eviction()) if tends else None,
            pin=_pin(found.pinning()) if pins else None,
            cost=found.cost(),
            ever=use_of(found.history, caller),
        )
    finally:
        release_helpers()


def _warm(effect: WarmingEffect) -> ToWarm:
    return ToWarm(chunks=effect.chunks, tokens=effect.tokens, bytes=effect.nbytes, takes=effect.takes)


def _evict(effect: EvictionEffect) -> ToEvict:
    gone = effect.gone
    return ToEvict(entries=gone.entries, bytes=gone.nbytes, tokens=effect.tokens, again=effect.again)


def _pin(effect: PinningEffect) -> ToPin:
    return ToPin(entries=effect.kept.entries, bytes=effect.kept.nbytes, pinned=effect.pinned, most=effect.most)
