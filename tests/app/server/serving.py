"""A real server on the loopback, in this process: uvicorn on a thread, over whatever service it is given."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import uvicorn

from app.server.service import Service
from app.server.web import create_app
from app.settings import Settings
from tests.ports import held_port
from tests.waiting import wait_until

STARTING_S = 60.0


@contextmanager
def served(settings: Settings) -> Iterator[httpx2.Client]:
    """A client of it, when it is ready. It has ended behind the block."""
    with held_port() as port:
        server = uvicorn.Server(
            uvicorn.Config(create_app(Service(settings)), port=port, log_config=None, timeout_graceful_shutdown=5)
        )
        thread = threading.Thread(target=server.run, name="server")
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive(), STARTING_S)
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=STARTING_S) as client:
                wait_until(lambda: client.get("/ready").status_code == 200, STARTING_S)
                yield client
        finally:
            server.should_exit = True
            thread.join(STARTING_S)
        assert not thread.is_alive()
