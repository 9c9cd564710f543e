"""Server-sent events. Each is one line of JSON, so that no text in it can begin another one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
BEAT = b": still here\n\n"  # a comment, which clients leave out: no proxy takes a quiet stream for a dead one
_NAME = re.compile(r"[\w.-]+")
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event(data: Any, *, name: str | None = None, number: int | None = None) -> bytes:
    """`name` is for listeners of one kind; by `number` a client says where it goes on (`Last-Event-ID`)."""
    assert name is None or _NAME.fullmatch(name)
    lines = [] if number is None else [f"id: {number}"]
    lines += [] if name is None else [f"event: {name}"]
    lines.append(f"data: {json.dumps(data, separators=(',', ':'))}")
    return ("\n".join(lines) + "\n\n").encode()


def streamed(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers=dict(_HEADERS))
