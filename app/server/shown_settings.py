"""What answers here: settings that shape answers, for whoever asks. Folders, addresses and secrets are none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from fastapi import APIRouter
from pydantic import BaseModel

from app.server.callers import Asking
from app.server.service import Service, Serving, told_model
from app.settings import KvMode, PromptOrder, RetrievalMode, variable
from ragcache.linking import LINKERS
from splitter import SPLITTERS

router = APIRouter(prefix="/v1/settings", tags=["settings"])
Value = bool | int | float | str | None
OWN = "custom"  # a strategy of whoever runs the server, by an import path that is his
MODELS = ("model", "embedder", "reranker")
STRATEGIES: Mapping[str, Sequence[str]] = {"linker": list(LINKERS), "splitter": list(SPLITTERS)}
CHOICES: Mapping[str, Sequence[str]] = {
    **STRATEGIES,
    "retrieval": get_args(RetrievalMode),
    "prompt_order": get_args(PromptOrder),
    "kv": get_args(KvMode),
}
PLAIN = ("engine", "retrieval", "top_k", "neighbours", "prompt_order", "max_tokens", "chunk_tokens", "min_chunk_tokens")
CACHE = ("kv", "codec", "context_chunks")
SAMPLING = ("temperature", "top_p", "seed")
BUDGETS = ("ram_bytes", "disk_bytes")  # for who may see all that they are of
BY_QUESTION = {
    "top_k": "chunks",
    "max_tokens": "max_tokens",
    "linker": "linker",
    "retrieval": "retrieval",
    **{one: one for one in SAMPLING},
}
ANEW = ("model", "embedder", "splitter", "chunk_tokens", "min_chunk_tokens", "codec")


class ShownSetting(BaseModel):
    name: str
    value: Value
    variable: str  # by which whoever runs the server changes it
    choices: list[str] | None  # where it is one of these
    question: str | None  # the field by which a question of a conversation brings another one
    anew: bool  # documents that are in stay as they are until they are sent, or their KV is computed, anew


class ShownSettings(BaseModel):
    object: Literal["list"] = "list"
    data: list[ShownSetting]


@router.get("")
def shown_settings(service: Serving, caller: Asking) -> ShownSettings:
    """Budgets are told to an `admin` of all collections alone."""
    caller.check("read")
    names = [*MODELS, *STRATEGIES, *PLAIN, *CACHE, *SAMPLING, *(BUDGETS if caller.runs_all else ())]
    return ShownSettings(data=[_shown(service, name) for name in names])


def _shown(service: Service, name: str) -> ShownSetting:
    choices = CHOICES.get(name)
    return ShownSetting(
        name=name,
        value=_value(service, name),
        variable=variable(name),
        choices=None if choices is None else list(choices),
        question=BY_QUESTION.get(name),
        anew=name in ANEW,
    )


def _value(service: Service, name: str) -> Value:
    value: Value = getattr(
        service.pipeline.models.sampling if name in ("temperature", "top_p") else service.settings, name
    )
    if name in MODELS and isinstance(value, str):
        return told_model(value)
    if name in STRATEGIES and isinstance(value, str):
        return value if value.partition(":")[0] in STRATEGIES[name] else OWN
    return value
