"""Files sent to a server, whose jobs are waited for."""

from __future__ import annotations

from typing import Any

import httpx2

from app.samples import read_samples
from tests.waiting import wait_until

PATIENCE_S = 60.0


def send_samples(client: httpx2.Client, collection: str) -> None:
    """Into a new one."""
    client.post("/v1/collections", json={"name": collection}).raise_for_status()
    for name, text in read_samples().items():
        assert sent(client, name, text, collection)["state"] == "done"


def sent(client: httpx2.Client, name: str, data: bytes | str, collection: str = "shelf") -> dict[str, Any]:
    """The job, when it has ended."""
    found = client.put(f"/v1/collections/{collection}/documents/{name}", content=data)
    assert found.status_code == 202, found.text
    job: dict[str, Any] = found.json()

    def look() -> bool:
        job.update(client.get(f"/v1/jobs/{job['id']}").json())
        return job["state"] in ("done", "failed", "cancelled")

    wait_until(look, PATIENCE_S, lambda: str(job))
    return job
