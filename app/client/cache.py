"""A server's KV cache: what is in it, what it was good for, and what is done to it by hand, each told before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.client.connection import CACHE, COLLECTIONS, JOBS, Record, ServerConnection

MOST_REUSED = 10


def state(connection: ServerConnection) -> Record:
    """`collections`, each with what it has there, and `tiers`, which are None for who may not see all."""
    return connection.record(connection.ask("GET", *CACHE))


def history(connection: ServerConnection, step: str, collection: str | None = None) -> Record:
    """By `minute`, `hour` or `day`; of all that the key may see where no collection is named."""
    return connection.record(connection.ask("GET", *CACHE, "history", query=_query(collection, step=step)))


def reused(connection: ServerConnection, collection: str | None = None, limit: int = MOST_REUSED) -> list[Record]:
    """The chunks that served most answers."""
    return connection.records(connection.ask("GET", *CACHE, "reused", query=_query(collection, limit=limit)))


def effects(connection: ServerConnection, collection: str) -> Record:
    """What `warm`, `evict` and `pin` would do, None where this key may not; and what the KV costs and saves."""
    return connection.record(connection.ask("GET", *COLLECTIONS, collection, "cache"))


def warm(connection: ServerConnection, collection: str) -> Record:
    """The job that computes what is missing."""
    return connection.record(connection.ask("POST", *COLLECTIONS, collection, "cache", "warm"))


def evict(connection: ServerConnection, collection: str) -> Record:
    return connection.record(connection.ask("POST", *COLLECTIONS, collection, "cache", "evict"))


def pin(connection: ServerConnection, collection: str) -> Record:
    return connection.record(connection.ask("PUT", *COLLECTIONS, collection, "cache", "pin"))


def unpin(connection: ServerConnection, collection: str) -> Record:
    return connection.record(connection.ask("DELETE", *COLLECTIONS, collection, "cache", "pin"))


def warming(connection: ServerConnection) -> list[Record]:
    """Jobs that compute KV, the newest first. Raises ServerError, also where this key may not see any."""
    found = connection.records(connection.ask("GET", *JOBS, query={"limit": 100}))
    return [one for one in found if one.get("kind") == "warm"]


def budgets(connection: ServerConnection, asked: Mapping[str, int] | None = None) -> dict[str, Record]:
    """By tier, as they are and as they would be with those `asked` for (bytes, by tier). Nothing is changed."""
    told = connection.ask("GET", *CACHE, "budgets", query=_bytes(asked or {}))
    return _by_tier(connection, told)


def set_budgets(connection: ServerConnection, asked: Mapping[str, int]) -> dict[str, Record]:
    return _by_tier(connection, connection.ask("PUT", *CACHE, "budgets", body=_bytes(asked)))


def _bytes(asked: Mapping[str, int]) -> dict[str, int]:
    return {f"{tier}_bytes": nbytes for tier, nbytes in asked.items()}


def _query(collection: str | None, **more: Any) -> dict[str, Any]:
    return more if collection is None else {**more, "collection": collection}


def _by_tier(connection: ServerConnection, told: Any) -> dict[str, Record]:
    return {str(one.get("tier")): one for one in connection.records(told, "tiers")}
