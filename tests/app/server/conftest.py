from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from app import Settings
from tests.app.server.serving import served


@pytest.fixture(scope="session")
def client(sampled: Settings) -> Iterator[httpx2.Client]:
    """Of a server over the samples, by the small random model. Shared, so a test leaves the collection as it is."""
    with served(sampled) as client:
        yield client


@pytest.fixture
def conversation(client: httpx2.Client) -> Iterator[str]:
    """The path of an empty one."""
    made = client.post("/v1/conversations", json={})
    assert made.status_code == 201, made.text
    path = f"/v1/conversations/{made.json()['id']}"
    yield path
    client.delete(path)
