"""What is asked and read of a server's conversations, each by its path."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.app.server.event_streams import Told, asked

FIRST, SECOND = "Who designed the lighthouse?", "How tall is it?"
LONG = {"question": FIRST, "max_tokens": 1200, "temperature": 2.0, "seed": 1}


def ask(client: httpx2.Client, path: str, question: str = FIRST, **options: Any) -> list[Told]:
    with asked(client, "POST", f"{path}/messages", json={"question": question, **options}) as events:
        return list(events)


def messages(client: httpx2.Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"{path}/messages").json()["data"]
    return found
