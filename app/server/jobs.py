"""Jobs: files that are ingested, KV that is computed, and how far that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from app.errors import NotFound
from app.job_states import ENDED, LAST, MODEL, JobKind, JobState
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.models.cores import in_thread
from app.server.callers import Asking, Caller
from app.server.events import BEAT, MEDIA_TYPE, event, sound, streamed
from app.server.job_watch import SeenJob
from app.server.problems import RefusedRequest, stream_problem
from app.server.redaction import placeless, redacted_notes
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
BEAT_S = 15.0
COMPUTED = ("kv_variants", "kv_bytes")


class JobCard(BaseModel):
    id: str
    object: Literal["job"] = "job"
    kind: JobKind
    collection: str
    name: str  # of the file; "" where it is of none
    bytes: int
    state: str
    error: str | None
    progress: dict[str, Any]
    attempts: int
    created: int
    started: int | None
    finished: int | None


class JobList(BaseModel):
    """The newest comes first."""

    object: Literal["list"] = "list"
    data: list[JobCard]


@router.get("")
def jobs(
    service: Serving,
    caller: Asking,
    state: JobState | None = None,
    kind: JobKind | None = None,
    collection: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JobList:
    """The last ones of all, or of a state, a kind and a collection."""
    caller.check("ingest")
    of = None if collection is None else caller.collection(service.catalog, collection)
    found = service.catalog.jobs.all(
        owner=_owner(caller), collection=of, within=caller.collections, state=state, kind=kind, limit=limit
    )
    seen = {one.id: one for one in service.catalog.collections.all()}  # behind them: some may have gone meanwhile
    return JobList(data=[card_of(one, seen[one.collection_id], caller) for one in found if one.collection_id in seen])


@router.get("/{job_id}")
def job(job_id: str, service: Serving, caller: Asking) -> JobCard:
    caller.check("ingest")
    return card_of(*_found(job_id, service, caller), caller)


@router.delete("/{job_id}")
def cancel(job_id: str, service: Serving, caller: Asking) -> JobCard:
    """One that runs ends at its next safe point; what has ended stays as it is."""
    caller.check("ingest")
    _, collection = _found(job_id, service, caller)
    return card_of(service.ingests.cancel(job_id, _owner(caller)), collection, caller)


@router.post("/{job_id}/retry")
def retry(job_id: str, service: Serving, caller: Asking) -> JobCard:
    """Of one that failed or was cancelled."""
    caller.check("ingest")
    _, collection = _found(job_id, service, caller)
    return card_of(service.ingests.retry(job_id, _owner(caller)), collection, caller)


@router.get("/{job_id}/events", response_class=StreamingResponse, responses={200: {"content": {MEDIA_TYPE: {}}}})
async def events(job_id: str, service: Serving, caller: Asking) -> StreamingResponse:
    """The job each time that something of it has changed, as an event `job`, until it has ended. Whoever comes back
    begins with how it stands then.
    """
    caller.check("ingest")
    found, collection = await in_thread(_found, job_id, service, caller)
    return streamed(_events(found, collection, service, caller))


async def _events(found: StoredJob, collection: Collection, service: Service, caller: Caller) -> AsyncIterator[bytes]:
    shown = card_of(found, collection, caller)
    refused = asyncio.ensure_future(service.key_watch.end_of(caller.id))
    number = 0
    try:
        yield event(shown.model_dump(), name="job", number=number)
        async with aclosing(_changes(shown, (found, collection), service, caller, refused)) as changes:
            async for card in changes:
                if card is None:
                    yield BEAT
                    continue
                number += 1
                yield event(card.model_dump(), name="job", number=number)
    except RefusedRequest as refusal:
        yield event(stream_problem(refusal, caller.runs_it), name="error", number=number + 1)
    finally:
        refused.cancel()


async def _changes(
    shown: JobCard, seen: SeenJob, service: Service, caller: Caller, refused: asyncio.Future[RefusedRequest]
) -> AsyncGenerator[JobCard | None, None]:
    """The job each time that something of it has changed, until it has ended or is gone; None where nothing has for a
    while. Raises what comes of `refused`.
    """
    with service.job_watch.following(seen) as news:
        while shown.state not in ENDED:
            coming = asyncio.ensure_future(news.next())
            either: list[asyncio.Future[Any]] = [refused, coming]
            try:
                await asyncio.wait(either, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
            if refused.done():
                raise refused.result()
            now = coming.result() if coming.done() else seen
            if now is None:  # with its collection
                return
            before, seen, shown = shown, now, card_of(*now, caller)
            yield None if shown == before else shown


def card_of(found: StoredJob, collection: Collection, caller: Caller) -> JobCard:
    """Folders of the server are for whoever runs it alone; what was computed tells who sees all collections what was
    there before.
    """
    request, error = found.request, found.error
    progress = {name: value for name, value in found.progress.items() if name not in (LAST, MODEL)}
    if caller.bordered and (found.kind == "ingest" or request.get("border") != caller.border_of(collection)):
        progress = {name: value for name, value in progress.items() if name not in COMPUTED}
    if not caller.runs_it:
        error = error and placeless(sound(error))
        progress |= {"notes": redacted_notes(progress["notes"])} if "notes" in progress else {}
    return JobCard(
        id=found.id,
        kind=found.kind,
        collection=collection.name,
        name=str(request.get("name", "")),
        bytes=int(request.get("size", 0)),
        state=found.state,
        error=error,
        progress=progress,
        attempts=found.attempts,
        created=int(found.created.timestamp()),
        started=None if found.started is None else int(found.started.timestamp()),
        finished=None if found.finished is None else int(found.finished.timestamp()),
    )


def _owner(caller: Caller) -> str | None:
    """Whose jobs he sees: an admin all of them."""
    return None if "admin" in caller.scopes else caller.id


def _found(job_id: str, service: Service, caller: Caller) -> tuple[StoredJob, Collection]:
    found = service.catalog.jobs.get(job_id, _owner(caller))
    collection = service.catalog.collections.with_id(found.collection_id)
    if collection is None or not caller.may_see(collection):
        raise NotFound(f"no job {job_id!r}")
    return found, collection
