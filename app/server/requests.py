"""What is seen of each request: a line in the log, a count, and an id by which its client can ask about it."""

from __future__ import annotations

import logging
import re
import uuid
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.metrics import Metrics
from app.server.queueing import GONE

ID_HEADER = b"x-request-id"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"  # what is no route, or no method: clients could make up endlessly many
QUIET = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds
_HARMLESS = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger(__name__)


class Observed:
    """ASGI middleware, around all others. Of a request its route is told, never its path, query, head or body."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status, request_id = perf_counter(), GONE, _id(scope)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (ID_HEADER, request_id)]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            self._note(scope, status, perf_counter() - start, request_id.decode())

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route = getattr(scope.get("route"), "path", OTHER)
        self._metrics.requests.labels(method, route, str(status)).inc()
        caller = scope.get("state", {}).get("caller")
        fields: dict[str, Any] = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        fields |= {"caller": caller.id if caller is not None else None, "request": request_id}
        level = logging.DEBUG if route in QUIET else logging.INFO
        _log.log(
            level,
            "%s %s %s, %.3f s, caller %s, request %s",
            *(method, route, status, seconds, fields["caller"] or "-", request_id),
            extra={"fields": fields},
        )


def _id(scope: Scope) -> bytes:
    """The client's own, where it can stand in any log; else a new one."""
    told = next((value for name, value in scope["headers"] if name == ID_HEADER), b"")
    return bytes(told) if _HARMLESS.fullmatch(told) else uuid.uuid4().hex.encode()
