"""A real server on the loopback, in this process: uvicorn on a thread, over whatever service it is given."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from app.library.catalog.copies import write_copy
from app.library.catalog.database import FILE
from app.server.process import ServerProcess, bound
from app.server.service import Service
from app.server.web import create_app
from app.settings import Settings
from tests.waiting import wait_until

STARTING_S = 60.0
GRACE_S = 5.0


def beside(settings: Settings, folder: Path) -> Settings:
    """The same collections in another folder, without their KV. Files of SQLite are not copied as such: who closes one
    lets go of the locks that his process has on it.
    """
    (folder / "data").mkdir()
    write_copy(settings.data_dir / FILE, folder / "data" / FILE)
    return settings.model_copy(update={"data_dir": folder / "data", "cache_dir": folder / "cache"})


@contextmanager
def served(
    settings: Settings, headers: Mapping[str, str] | None = None, *, waits: bool = True, port: int = 0
) -> Iterator[httpx2.Client]:
    """A client of it, when it is ready, or only listens. It has ended behind the block."""
    with serving(Service(settings), headers, waits=waits, port=port) as client:
        yield client


@contextmanager
def serving(
    service: Service, headers: Mapping[str, str] | None = None, *, waits: bool = True, port: int = 0
) -> Iterator[httpx2.Client]:
    """The same, of a service that a test looks into."""
    sockets = bound("127.0.0.1", port)
    port = sockets[0].getsockname()[1]
    server = ServerProcess(create_app(service), service.turns, GRACE_S)
    thread = threading.Thread(target=server.run, args=(sockets,), name="server")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), STARTING_S)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=STARTING_S, headers=headers) as client:
            wait_until(lambda: not waits or client.get("/ready").status_code == 200, STARTING_S)
            yield client
    finally:
        server.should_exit = True
        thread.join(STARTING_S)
    assert not thread.is_alive()
