"""Documents of a collection: sent as they are, ingested by jobs. Their names are data, and never a path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from app.errors import NotFound
from app.ingestion.spool import Incoming
from app.library.catalog.records import Collection, Document, State
from app.library.kv import with_kv
from app.library.originals import SCHEME, sources_of
from app.library.removal import remove_documents
from app.models.cores import in_thread, release_helpers
from app.server.callers import Asking, Caller
from app.server.jobs import JobCard, card_of
from app.server.limits import declared
from app.server.problems import RefusedRequest
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1/collections/{name}/documents", tags=["documents"])
MOST_WITH_KV = 200
LARGEST = 2**31 - 1
AT_ONCE = 1 << 20  # bytes that are held of a file that comes
FILE = {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


class DocumentCard(BaseModel):
    """`name` is what its client called it; of a file that the server's machine ingested, its path."""

    id: int
    object: Literal["document"] = "document"
    name: str
    title: str
    kind: str
    state: str
    error: str | None
    bytes: int
    created: int
    updated: int


class ListedDocument(DocumentCard):
    chunks: int
    tokens: int
    pages: int  # 0 where the format has none
    cached: int | None  # of its chunks, those with KV that serves the caller, where `kv` asks for it


class DocumentList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ListedDocument]
    has_more: bool


class ChunkSpan(BaseModel):
    """`text[start:end]` of its document."""

    id: int
    start: int
    end: int
    tokens: int
    heading: list[str]
    pages: list[int]
    cached: bool | None  # whether it has KV that serves the caller, where `kv` asks for it


class WholeDocument(DocumentCard):
    """`text` is all of it, or the part that was asked for, which begins at `start`; `chunks` are those of the part."""

    text: str
    start: int
    length: int  # of the whole text, in characters
    chunks: list[ChunkSpan]


class RemovedDocument(BaseModel):
    id: int
    deleted: Literal[True] = True
    chunks: int
    kv_variants: int | None  # None for a key of some collections: KV stays where another one has the same text


@router.put("/{file}", status_code=202, openapi_extra={"requestBody": FILE})
async def upload(name: str, file: str, request: Request, service: Serving, caller: Asking) -> JobCard:
    """The body is the file, as it is. It is on the disk when this returns, and ingested soon; one of the same name is a
    new version of that document.
    """
    caller.check("ingest")
    collection = await in_thread(caller.collection, service.catalog, name)
    async with service.uploads.one(caller.id, request.receive) as receive:
        with ExitStack() as arriving:
            incoming = await in_thread(arriving.enter_context, service.ingests.incoming(file, caller.id, caller.limits))
            await in_thread(incoming.expect, declared(request.scope))
            lapsed: list[RefusedRequest] = []
            arriving.enter_context(service.key_watch.watching(caller.id, lapsed.append))
            await _receive(Request(request.scope, receive), incoming, lapsed)
            async with service.changes.one(caller.id, receive):
                limits = caller.limits
                job = await in_thread(service.ingests.add, collection, file, incoming, caller.id, limits)
    return card_of(job, collection, caller)


async def _receive(request: Request, incoming: Incoming, lapsed: Sequence[RefusedRequest]) -> None:
    """Unless its key has `lapsed` meanwhile."""
    held = bytearray()
    try:
        async for data in request.stream():
            if lapsed:
                raise lapsed[0]
            held += data
            if len(held) >= AT_ONCE:
                await in_thread(incoming.write, bytes(held))
                held.clear()
    except ClientDisconnect:
        raise RefusedRequest(400, "the client went away before the whole file had come") from None
    await in_thread(incoming.write, bytes(held))
    if not incoming.size:
        raise RefusedRequest(400, "the file is empty (0 bytes): there is nothing to ingest")


@router.get("")
def documents(
    name: str,
    service: Serving,
    caller: Asking,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    called: Annotated[str | None, Query(alias="name", max_length=5000)] = None,
    kv: bool = False,
) -> DocumentList:
    """By their ids; `after`: the last one of the page before; `name`: of this name alone. A failed one says why. With
    `kv` a page is shorter: all chunks on it are looked up.
    """
    caller.check("read")
    if kv and limit > MOST_WITH_KV:
        raise RefusedRequest(400, f"limit: with kv a page has {MOST_WITH_KV} documents at most", param="limit")
    sources = None if called is None else (called, f"{SCHEME}{called}", *sources_of(called))
    collection = caller.collection(service.catalog, name)
    found = service.catalog.documents.page(collection, limit + 1, after=after, state=state, sources=sources)
    cached = _cached(service, caller, collection, [one.document.id for one in found[:limit]]) if kv else {}
    cards = [
        ListedDocument(
            **_card(one.document).model_dump(),
            chunks=one.chunks,
            tokens=one.tokens,
            pages=one.pages,
            cached=cached.get(one.document.id),
        )
        for one in found[:limit]
    ]
    return DocumentList(data=cards, has_more=len(found) > limit)


@router.get("/{document_id}")
def document(
    name: str,
    document_id: int,
    service: Serving,
    caller: Asking,
    kv: bool = False,
    start: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    end: Annotated[int, Query(ge=0, le=LARGEST)] = LARGEST,
) -> WholeDocument:
    """Its text, and where its chunks stand in it; `start` and `end` ask for a part of the text alone."""
    caller.check("read")
    collection = caller.collection(service.catalog, name)
    found = document_of(service, collection, document_id)
    stored = service.catalog.chunks.of_document(found.id, start, end)
    cached = _with_kv(service, caller, collection, {one.token_hash for one in stored}) if kv else None
    chunks = [
        ChunkSpan(
            id=one.id,
            start=one.start,
            end=one.end,
            tokens=one.tokens,
            heading=list(one.heading),
            pages=[number for number, _ in one.pages],
            cached=None if cached is None else one.token_hash in cached,
        )
        for one in stored
    ]
    text = service.catalog.documents.text(found.id)
    start = min(start, len(text))
    return WholeDocument(
        **_card(found).model_dump(), text=_sound(text[start:end]), start=start, length=len(text), chunks=chunks
    )


@router.delete("/{document_id}")
def delete(name: str, document_id: int, service: Serving, caller: Asking) -> RemovedDocument:
    """With its KV, as far as nobody else has the same text. 409 while an ingest works on the collection."""
    caller.check("ingest")
    collection = caller.collection(service.catalog, name)
    found = document_of(service, collection, document_id)
    gone = remove_documents(service.pipeline.library, service.pipeline.models, collection, [found.id])
    return RemovedDocument(id=found.id, chunks=gone.chunks, kv_variants=None if caller.bordered else gone.kv_variants)


def _cached(service: Service, caller: Caller, collection: Collection, ids: Sequence[int]) -> dict[int, int]:
    hashes = service.catalog.chunks.hashes_of(ids)
    cached = _with_kv(service, caller, collection, set().union(*hashes.values()))
    return {one: sum(chunk in cached for chunk in own) for one, own in hashes.items()}


def _with_kv(service: Service, caller: Caller, collection: Collection, hashes: set[str]) -> set[str]:
    try:
        return with_kv(service.pipeline.models, hashes, caller.border_of(collection))
    finally:
        release_helpers()


def document_of(service: Service, collection: Collection, document_id: int) -> Document:
    """One of another collection is not there."""
    missing = NotFound(f"no document {document_id} in {collection.name!r}")
    if not 0 <= document_id < 2**63:
        raise missing
    try:
        found = service.catalog.documents.get(document_id)
    except NotFound:  # told as one of a collection that is not to be seen
        raise missing from None
    if found.collection_id != collection.id:
        raise missing
    return found


def _card(found: Document) -> DocumentCard:
    return DocumentCard(
        id=found.id,
        name=_sound(found.source.removeprefix(SCHEME)),
        title=_sound(found.title),
        kind=found.kind,
        state=found.state,
        error=None if found.error is None else _sound(found.error),
        bytes=found.size,
        created=int(found.created.timestamp()),
        updated=int(found.updated.timestamp()),
    )


def _sound(text: str) -> str:
    """As JSON can be sent: names on a disk, and files, may hold what is no text. As long as it was."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
