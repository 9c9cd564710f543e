"""What a collection begins with: documents that come with the program, and questions to ask first."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.answering.suggestions import suggested_questions
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.samples import read_samples
from app.server.callers import Asking, Caller
from app.server.events import sound
from app.server.jobs import JobCard, card_of
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1/collections/{name}", tags=["collections"])


class SampleJobs(BaseModel):
    object: Literal["list"] = "list"
    data: list[JobCard]


class SuggestedQuestions(BaseModel):
    object: Literal["list"] = "list"
    data: list[str]


@router.post("/samples", status_code=202)
def samples(name: str, service: Serving, caller: Asking) -> SampleJobs:
    """Three short documents, as if they had been sent: a job each."""
    caller.check("ingest")
    collection = caller.collection(service.catalog, name)
    jobs = [_sent(service, caller, collection, *sample) for sample in read_samples().items()]
    return SampleJobs(data=[card_of(one, collection, caller) for one in jobs])


@router.get("/questions")
def questions(name: str, service: Serving, caller: Asking) -> SuggestedQuestions:
    """Up to four, of what the first documents are called and how they begin."""
    caller.check("read")
    found = suggested_questions(service.catalog, caller.collection(service.catalog, name))
    return SuggestedQuestions(data=[sound(one) for one in found])


def _sent(service: Service, caller: Caller, collection: Collection, name: str, text: str) -> StoredJob:
    data = text.encode()
    with service.ingests.incoming(name, caller.id, caller.limits) as incoming:
        incoming.expect(len(data))
        incoming.write(data)
        return service.ingests.add(collection, name, incoming, caller.id, caller.limits)
