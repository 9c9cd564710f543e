"""A server without keys answers the programs of its machine, and no pages that a browser there shows."""

from __future__ import annotations

import httpx2
import pytest


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:1"])
def test_local_names_are_answered(client: httpx2.Client, host: str) -> None:
    assert client.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.168.0.7", "", "[", "127.0.0.1.nip.io"])
def test_a_name_that_somebody_else_may_have_given_this_machine_is_refused(client: httpx2.Client, host: str) -> None:
    found = client.get("/v1/models", headers={"Host": host})
    assert found.status_code in (400, 403)
    assert "smollm2" not in found.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://[", ""])
def test_pages_of_other_sites_are_refused(client: httpx2.Client, origin: str) -> None:
    found = client.get("/v1/models", headers={"Origin": origin})
    assert found.status_code == 403
    assert found.json()["error"]["type"] == "permission_error"


def test_its_own_pages_are_answered(client: httpx2.Client) -> None:
    own = f"http://{client.base_url.netloc.decode()}"
    assert client.get("/v1/models", headers={"Origin": own}).status_code == 200
