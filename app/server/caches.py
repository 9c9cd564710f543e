"""Explicit context caches (EPIC): static texts or tokens under an id, which messages name in any order and number."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from app.chat.contexts import LONGEST_S, MOST_CHUNKS, ContextRequest
from app.library.catalog.serving_records import ContextCache
from app.models.cores import in_thread
from app.server.bodies import RequestBody, Several
from app.server.callers import Asking, Caller
from app.server.service import Service, Serving
from splitter import SPLITTERS, SplitterError, parse_spec

router = APIRouter(prefix="/v1/context_caches", tags=["context caches"])
TokenIds = Annotated[Several[Annotated[int, Field(strict=True, ge=0, lt=2**31)]], Field(min_length=1)]


class NewContext(RequestBody):
    """`texts` or `tokens`. Each text is a chunk, or what the splitter `split` makes of it."""

    model_config = ConfigDict(extra="forbid")
    texts: Annotated[Several[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_CHUNKS)] = Field(default=[])
    tokens: Annotated[Several[TokenIds], Field(max_length=MOST_CHUNKS)] = Field(default=[])
    split: Annotated[str, Field(max_length=1000)] | None = None
    ttl: Annotated[float, Field(gt=0, le=LONGEST_S)] | None = None  # seconds
    pinned: bool = False


class ContextCard(BaseModel):
    id: str
    object: Literal["context_cache"] = "context_cache"
    created: int
    expires: int | None
    pinned: bool
    bytes: int  # of KV, as it is computed
    chunks: list[int] | None = None  # tokens of each; None in a list of caches


class ContextList(BaseModel):
    """The newest comes first."""

    object: Literal["list"] = "list"
    data: list[ContextCard]


class ExpiredContext(BaseModel):
    id: str
    object: Literal["context_cache"] = "context_cache"
    deleted: Literal[True] = True


@router.post("", status_code=201)
async def create(request: Request, body: NewContext, service: Serving, caller: Asking) -> ContextCard:
    """With its KV, when this returns."""
    caller.check("ingest")
    await service.turns.of(caller, request)
    return await in_thread(_created, body, service, caller)


def _created(body: NewContext, service: Service, caller: Caller) -> ContextCard:
    if body.split is not None and parse_spec(body.split)[0] not in SPLITTERS:  # an import path runs code
        raise SplitterError(f"no splitter {body.split!r}: choose from {', '.join(SPLITTERS)}")
    request = ContextRequest(body.texts, body.tokens, body.split, body.ttl, body.pinned)
    made = service.contexts.create(request, caller.id, caller.border)
    return _card(*service.contexts.get(made.id, caller.id))


@router.get("")
def caches(service: Serving, caller: Asking) -> ContextList:
    caller.check("read")
    return ContextList(data=[_card(one) for one in service.contexts.all(caller.id)])


@router.get("/{cache_id}")
def cache(cache_id: str, service: Serving, caller: Asking) -> ContextCard:
    caller.check("read")
    return _card(*service.contexts.get(cache_id, caller.id))


@router.delete("/{cache_id}")
def expire(cache_id: str, service: Serving, caller: Asking) -> ExpiredContext:
    """With its KV, as far as nobody else has the same text."""
    caller.check("ingest")
    service.contexts.expire(cache_id, caller.id)
    return ExpiredContext(id=cache_id)


def _card(cache: ContextCache, chunks: list[int] | None = None) -> ContextCard:
    return ContextCard(
        id=cache.id,
        created=_second(cache.created),
        expires=None if cache.expires is None else _second(cache.expires),
        pinned=cache.pinned,
        bytes=cache.nbytes,
        chunks=chunks,
    )


def _second(moment: datetime) -> int:
    return int(moment.timestamp())
