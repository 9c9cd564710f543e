"""Budgets of the KV cache, which an admin of the whole server may look ahead at and change while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.server.bodies import RequestBody
from app.server.callers import Asking
from app.server.service import Serving
from app.settings import variable
from ragcache.store.budgets import BudgetOutlook
from ragcache.store.findings import DISK, RAM

router = APIRouter(prefix="/v1/cache/budgets", tags=["KV cache"])
MOST = 2**63 - 1
Asked = Annotated[int | None, Query(ge=0, le=MOST)]
Wanted = Annotated[int, Field(strict=True, ge=0, le=MOST)]


class NewBudgets(RequestBody):
    """In bytes. A tier whose budget is left out, or null, keeps what it has."""

    model_config = ConfigDict(extra="forbid")
    ram_bytes: Wanted | None = None
    disk_bytes: Wanted | None = None


class TierBudget(BaseModel):
    """A rate is the share of uses at which an entry would be there, as those of entries that were used again since the
    server was started foretell it; None where there were none.
    """

    tier: str
    bytes: int  # that it holds
    budget: int | None  # in force
    budget_asked: int | None  # the same where none was asked for
    evicted_entries: int  # at once, by the budget that was asked for
    evicted_bytes: int
    hit_rate: float | None
    hit_rate_asked: float | None
    uses: int  # that the rates are counted on
    setting: str  # what keeps a budget beyond the end of the server


class CacheBudgets(BaseModel):
    object: Literal["cache_budgets"] = "cache_budgets"
    tiers: list[TierBudget]


@router.get("")
def outlook(service: Serving, caller: Asking, ram_bytes: Asked = None, disk_bytes: Asked = None) -> CacheBudgets:
    """What other budgets would do. Nothing is changed. 409 where the KV is not kept by this server."""
    caller.check_whole()
    return _card(service.budgets.outlooks(_by_tier(ram_bytes, disk_bytes)))


@router.put("")
def change(body: NewBudgets, service: Serving, caller: Asking) -> CacheBudgets:
    """Until the server ends. What does not fit is evicted when this returns, but for what is pinned."""
    caller.check_whole()
    return _card(service.budgets.change(_by_tier(body.ram_bytes, body.disk_bytes)))


def _by_tier(ram: int | None, disk: int | None) -> dict[str, int]:
    return {name: budget for name, budget in ((RAM, ram), (DISK, disk)) if budget is not None}


def _card(outlooks: Iterable[BudgetOutlook]) -> CacheBudgets:
    return CacheBudgets(
        tiers=[
            TierBudget(
                tier=one.tier,
                bytes=one.nbytes,
                budget=one.budget,
                budget_asked=one.asked,
                evicted_entries=one.leaving.entries,
                evicted_bytes=one.leaving.nbytes,
                hit_rate=one.hit_rate,
                hit_rate_asked=one.hit_rate_asked,
                uses=one.uses,
                setting=variable(f"{one.tier}_bytes"),
            )
            for one in outlooks
        ]
    )
