"""Collections: what can be asked, and where documents go."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.errors import can_be_shown
from app.library.catalog.records import Collection, CollectionTotals
from app.library.removal import remove_collection
from app.loaders.encodings import REPLACED
from app.models.cores import release_helpers
from app.server.bodies import RequestBody
from app.server.callers import Asking, Caller
from app.server.problems import RefusedRequest
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1/collections", tags=["collections"])
MOST = 1000  # whoever made them
CollectionName = Annotated[str, Field(min_length=1, max_length=200)]


class NamedCollection(RequestBody):
    name: CollectionName


class CollectionCard(BaseModel):
    """`bytes` are those of the files, as they came."""

    object: Literal["collection"] = "collection"
    name: str
    model: str  # as which it is asked
    created: int
    documents: int
    failed: int
    chunks: int
    tokens: int
    bytes: int


class CollectionList(BaseModel):
    object: Literal["list"] = "list"
    data: list[CollectionCard]


class RemovedCollection(BaseModel):
    name: str
    deleted: Literal[True] = True
    documents: int
    chunks: int
    kv_variants: int | None  # None for a key of some collections


@router.post("", status_code=201)
def create(body: NamedCollection, service: Serving, caller: Asking) -> CollectionCard:
    """Empty. It is embedded and cut as the server's settings say."""
    _check_naming(caller, body.name)
    if service.catalog.collections.find(body.name) is not None:
        raise RefusedRequest(409, f"there is a collection {body.name!r} already", param="name")
    if len(service.catalog.collections.all()) >= MOST:
        raise RefusedRequest(403, f"there are {MOST:,} collections: delete some", code="limit")
    try:
        return _card(service, service.pipeline.library.collection_or_new(body.name))
    finally:
        release_helpers()


@router.get("")
def collections(service: Serving, caller: Asking) -> CollectionList:
    caller.check("read")
    seen = [one for one in service.catalog.collections.all() if caller.may_see(one)]
    totals = service.catalog.collections.totals_of(seen)
    return CollectionList(data=[_card_with(service, one, totals[one.id]) for one in seen])


@router.get("/{name}")
def collection(name: str, service: Serving, caller: Asking) -> CollectionCard:
    caller.check("read")
    return _card(service, caller.collection(service.catalog, name))


@router.patch("/{name}")
def rename(name: str, body: NamedCollection, service: Serving, caller: Asking) -> CollectionCard:
    _check_naming(caller, body.name)
    found = caller.collection(service.catalog, name)
    service.catalog.collections.rename(found, body.name)
    return _card(service, caller.collection(service.catalog, body.name))


@router.delete("/{name}")
def delete(name: str, service: Serving, caller: Asking) -> RemovedCollection:
    """With its documents, their KV, and its conversations. 409 while an ingest works on it."""
    caller.check("ingest")
    found = caller.collection(service.catalog, name)
    gone = remove_collection(service.pipeline.library, service.pipeline.models, found)
    service.pipeline.gate.quality.forget(found.id)
    variants = None if caller.bordered else gone.kv_variants
    return RemovedCollection(name=name, documents=gone.documents, chunks=gone.chunks, kv_variants=variants)


def _check_naming(caller: Caller, name: str) -> None:
    """Which names are taken is for who sees all collections."""
    caller.check("ingest")
    if caller.collections is not None:
        raise RefusedRequest(403, "this key is of some collections alone, and names none", code="scope")
    if not can_be_shown(name) or not name.strip() or "/" in name or REPLACED in name:
        told = f"name: {name!r} cannot name a collection: use no slashes, and no bytes that are no UTF-8"
        raise RefusedRequest(400, told, param="name")


def _card(service: Service, found: Collection) -> CollectionCard:
    return _card_with(service, found, service.catalog.collections.totals(found))


def _card_with(service: Service, found: Collection, totals: CollectionTotals) -> CollectionCard:
    return CollectionCard(
        name=found.name,
        model=f"{service.model}@{found.name}",
        created=int(found.created.timestamp()),
        documents=totals.documents,
        failed=totals.failed,
        chunks=totals.chunks,
        tokens=totals.tokens,
        bytes=totals.nbytes,
    )
