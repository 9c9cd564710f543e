"""OpenTelemetry: what the stages of each answer took, where the usual variables name a collector."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from app.settings import traces_wanted

if TYPE_CHECKING:
    from app.server.spans import Traces

_log = logging.getLogger(__name__)


def open_traces() -> Traces | None:
    if not traces_wanted():
        return None
    try:
        from app.server.spans import Traces  # it imports opentelemetry
    except ModuleNotFoundError as error:
        _log.warning("no traces: %s is not installed: pip install 'ragcache-kv[otel]'", error.name)
        return None
    return Traces()


class Traced:
    """ASGI middleware: answers belong to the trace that their client has begun (`traceparent`)."""

    def __init__(self, app: ASGIApp, *, traces: Traces):
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"traceparent"]
        with self._traces.within(told[0] if len(told) == 1 else ""):
            await self._app(scope, receive, send)
