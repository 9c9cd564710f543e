"""Which jobs are meant, as conditions of queries."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Text, or_, true, type_coerce

from app.library.catalog.serving_tables import JOBS

Ids = AbstractSet[int]
Owners = AbstractSet[str]
NONE: frozenset[Any] = frozenset()


def of_owner(owner: str | None) -> ColumnElement[bool]:
    return true() if owner is None else JOBS.c.owner == owner


def free(moment: datetime, place: str, but: Ids, besides: Owners) -> ColumnElement[bool]:
    wanted = claimable(moment)
    if place:
        wanted &= at_place(place)
    if besides:
        wanted &= JOBS.c.owner.not_in(besides)
    return wanted & JOBS.c.collection_id.not_in(but) if but else wanted


def claimable(moment: datetime) -> ColumnElement[bool]:
    return or_(JOBS.c.state == "queued", left(moment))


def left(moment: datetime) -> ColumnElement[bool]:
    """Whoever worked on it does not."""
    return (JOBS.c.state == "running") & (JOBS.c.leased_until < moment)


def at_place(place: str) -> ColumnElement[bool]:
    return _asking("place", place)


def named(name: str) -> ColumnElement[bool]:
    """And perhaps others, since capitals may be taken for small letters."""
    return _asking("name", name)


def _asking(field: str, value: str) -> ColumnElement[bool]:
    """Within the JSON, where no string can hold a quotation mark as it is."""
    asked = f"{json.dumps(field)}:{json.dumps(value)}"
    return type_coerce(JOBS.c.request, Text).contains(asked, autoescape=True)
