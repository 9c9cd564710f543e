"""Whom the page answers, and what it tells browsers of itself."""

from __future__ import annotations

import httpx2
import pytest

from ui.web import is_ours

EVIL = "http://evil.example"


@pytest.mark.parametrize(
    ("address", "host", "origin", "ours"),
    [
        ("127.0.0.1", "127.0.0.1:8501", None, True),
        ("127.0.0.1", "localhost:8501", "http://localhost:8501", True),
        ("::1", "[::1]:8501", "http://[::1]:8501", True),
        ("127.0.0.1", "127.0.0.1:8501", "http://127.0.0.1:3000", False),  # another program of this machine
        ("127.0.0.1", "127.0.0.1:8501", EVIL, False),
        ("127.0.0.1", "127.0.0.1:8501", "null", False),  # a file, a frame without rights
        ("127.0.0.1", "evil.example:8501", "http://evil.example:8501", False),  # a name that was made to lead here
        ("127.0.0.1", "", None, False),
        ("0.0.0.0", "rag.example.org", "https://rag.example.org", True),
        ("0.0.0.0", "rag.example.org", EVIL, False),
    ],
)
def test_pages_from_elsewhere_are_told_apart(address: str, host: str, origin: str | None, ours: bool) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    assert is_ours(headers, address) is ours


def test_a_page_from_elsewhere_gets_no_answer(url: str) -> None:
    assert httpx2.get(url).status_code == 200
    assert httpx2.get(url, headers={"Origin": EVIL}).status_code == 403
    assert httpx2.get(url, headers={"Host": "evil.example"}).status_code == 403
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==", "Origin": "http://127.0.0.1:1"}
    assert httpx2.get(f"{url}/_stcore/stream", headers=upgrade).status_code == 403


def test_browsers_are_held_to_the_own_origin(url: str) -> None:
    headers = httpx2.get(url).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
    assert headers["Referrer-Policy"] == "no-referrer"
