"""A server's cache by its client: looked at, tended, and refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from app import Settings
from app.client import cache, library
from app.client.address import NamedServer
from app.client.connection import ServerConnection, ServerError
from tests.app.server.serving import served

MIB = 1 << 20


@pytest.fixture(scope="module")
def connection(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerConnection]:
    folder = tmp_path_factory.mktemp("cache")
    settings = Settings(model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", kv="on-use")
    with served(settings) as client:
        connection = ServerConnection(NamedServer.read(str(client.base_url), None, "here", "KEY", ""))
        library.create(connection, "shelf")
        job = library.send(connection, "shelf", "quays.md", BytesIO(b"# Quays\n\nThe quays of Tarrow are old."))
        assert [one["state"] for one in library.follow(connection, job["id"])][-1] == "done"
        yield connection


def test_what_is_missing_is_told_computed_pinned_and_evicted(connection: ServerConnection) -> None:
    missing = cache.effects(connection, "shelf")["warm"]["chunks"]
    assert missing > 0
    job = cache.warm(connection, "shelf")
    assert [one["id"] for one in cache.warming(connection)] == [job["id"]]
    assert [one["state"] for one in library.follow(connection, job["id"])][-1] == "done"
    (shelf,) = cache.state(connection)["collections"]
    assert shelf["cached"] == missing
    assert cache.pin(connection, "shelf")["entries"] == shelf["entries"]
    assert cache.effects(connection, "shelf")["evict"]["entries"] == 0
    assert cache.unpin(connection, "shelf")["done"] == "unpinned"
    assert cache.evict(connection, "shelf")["bytes"] == shelf["bytes"]
    assert library.cancel(connection, job["id"])["state"] == "done"


def test_budgets_are_looked_at_and_set(connection: ServerConnection) -> None:
    now = cache.budgets(connection)
    assert set(now) == {"ram", "disk"}
    assert cache.budgets(connection, {"ram": MIB})["ram"]["budget_asked"] == MIB
    assert cache.budgets(connection)["ram"]["budget"] == now["ram"]["budget"]
    assert cache.set_budgets(connection, {"ram": MIB})["ram"]["budget"] == MIB


def test_history_is_of_what_was_asked(connection: ServerConnection) -> None:
    assert cache.history(connection, "hour")["total"]["answers"] == 0
    assert cache.reused(connection, "shelf", 3) == []
    for ask in (lambda: cache.history(connection, "hour", "nope"), lambda: cache.effects(connection, "nope")):
        with pytest.raises(ServerError, match="no collection"):
            ask()
