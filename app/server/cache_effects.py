"""One collection's KV: what warming, evicting and pinning it would do, and what it costs against what it saves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.cachecare.effects import CacheEffects, CaptureTime, EvictionEffect, KeptCost, PinningEffect, WarmingEffect
from app.models.cores import release_helpers
from app.server.cache_history import CacheUse, use_of
from app.server.callers import Asking
from app.server.kv_cache import CachedCollection, card_of
from app.server.service import Serving

router = APIRouter(tags=["KV cache"])
Basis = Literal["measured", "estimated"]


class TimeTold(BaseModel):
    """`measured`: at the pace of this collection so far; `estimated`: by the running rates; None where neither is."""

    seconds: float | None
    basis: Basis | None


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


class PaidBack(BaseModel):
    """What was measured: seconds of ingests and warming, and by how much the first token of an answer came sooner than
    without cache, on average of those that were compared. None where nothing was.
    """

    captured_s: float | None
    saved_s: float | None
    compared: int
    questions: int | None  # after which it has paid; None also where nothing is saved
    answers: int  # so far


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
            cost=_cost(found.cost()),
            ever=use_of(found.history, caller),
        )
    finally:
        release_helpers()


def _warm(effect: WarmingEffect) -> ToWarm:
    return ToWarm(chunks=effect.chunks, tokens=effect.tokens, bytes=effect.nbytes, takes=_time(effect.takes))


def _evict(effect: EvictionEffect) -> ToEvict:
    gone = effect.gone
    return ToEvict(entries=gone.entries, bytes=gone.nbytes, tokens=effect.tokens, again=_time(effect.again))


def _pin(effect: PinningEffect) -> ToPin:
    return ToPin(entries=effect.kept.entries, bytes=effect.kept.nbytes, pinned=effect.pinned, most=effect.most)


def _cost(cost: KeptCost) -> PaidBack:
    return PaidBack(**asdict(cost))


def _time(time: CaptureTime) -> TimeTold:
    return TimeTold(seconds=time.seconds, basis=time.basis)
