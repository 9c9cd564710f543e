"""`/v1/models`: the language model, and each collection as one that answers from its documents (smollm2@handbook)."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.errors import NotFound
from app.server.callers import Asking, Caller
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1", tags=["openai"])
STARTED = 1700000000  # of the model itself, whose makers say nothing; OpenAI's clients want a time


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ragcache"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


@router.get("/models")
def models(service: Serving, caller: Asking) -> ModelList:
    caller.check("read")
    return ModelList(data=_cards(service, caller))


@router.get("/models/{name:path}")
def model(name: str, service: Serving, caller: Asking) -> ModelCard:
    caller.check("read")
    for card in _cards(service, caller):
        if card.id == name:
            return card
    raise NotFound(f"no model {name!r}: GET /v1/models lists those that there are")


def _cards(service: Service, caller: Caller) -> list[ModelCard]:
    seen = [one for one in service.catalog.collections.all() if caller.may_see(one)]
    of_documents = [ModelCard(id=f"{service.model}@{one.name}", created=int(one.created.timestamp())) for one in seen]
    return [
        ModelCard(id=service.model, created=STARTED),
        ModelCard(id=service.embedder, created=STARTED),
        *of_documents,
    ]
