"""Server-sent events. Each is one line of JSON, so that no text in it can begin another one. And JSON of any length."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from fastapi.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
BEAT = b": still here\n\n"  # a comment, which clients leave out: no proxy takes a quiet stream for a dead one
_NAME = re.compile(r"[\w.-]+")
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event(data: Any, *, name: str | None = None, number: int | None = None, of: str = "") -> bytes:
    """`name` is for listeners of one kind; by `number` a client says where it goes on (`Last-Event-ID`) in that stream
    `of` several.
    """
    assert name is None or _NAME.fullmatch(name)
    lines = [] if number is None else [f"id: {of}-{number}" if of else f"id: {number}"]
    lines += [] if name is None else [f"event: {name}"]
    lines.append(f"data: {json.dumps(sound(data), separators=(',', ':'))}")
    return ("\n".join(lines) + "\n\n").encode()


def streamed(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers=dict(_HEADERS))


def sound(value: Any) -> Any:
    """As JSON tells it to any client: names of files may hold bytes that are no text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {sound(key): sound(one) for key, one in value.items()}
    return [sound(one) for one in value] if isinstance(value, list | tuple) else value


def written(value: Any, depth: int) -> bytes:
    """As JSON, for a thread: a long one in one go would hold all other threads up. What is `depth` levels below it, an
    entry of a long list, is to be short.
    """
    return b"".join(_parts(value, depth))


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    if not depth or not value or not isinstance(value, dict | list):
        yield _json(value)
        return
    named = isinstance(value, dict)
    for place, key in enumerate(value):
        yield b"," if place else b"{" if named else b"["
        if named:
            yield _json(key) + b":"
        yield from _parts(value[key] if named else key, depth - 1)
    yield b"}" if named else b"]"


def _json(value: Any) -> bytes:
    told = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return told.encode()
    except UnicodeEncodeError:
        return json.dumps(sound(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
