"""What a client reads of server-sent events, by the rules of the standard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Told:
    mark: str  # its id
    name: str
    data: Any


def told(lines: Iterable[str]) -> Iterator[Told]:
    fields: dict[str, str] = {}
    for line in lines:
        if not line and "data" in fields:
            yield Told(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            assert name not in fields, f"two lines of {name}"
            fields[name] = value
    assert not fields, f"an event has no end: {fields}"


@contextmanager
def asked(client: httpx2.Client, method: str, path: str, **options: Any) -> Iterator[Iterator[Told]]:
    """The events as they come; the block's end goes away from them."""
    with client.stream(method, path, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield told(response.iter_lines())


def text_of(events: Iterable[Told]) -> str:
    return "".join(one.data["text"] for one in events if one.name == "piece")
