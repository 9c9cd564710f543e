"""Who asks, found out before anything of a request is read."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import AsyncExitStack
from time import monotonic

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.library.catalog.serving_records import Key
from app.models.cores import in_thread
from app.server.callers import Caller, check_local
from app.server.connections import most_connections
from app.server.limits import KeyRates, OpenRequests, is_change, is_read, is_watch
from app.server.problems import RefusedRequest, refusal, unknown_key
from app.server.service import Service
from app.server.unread import UnreadAnswers
from ragcache.errors import RagcacheError

OPEN = ("/health",)  # for whoever watches over the process
LOOK_S = 1.0  # how long it is believed that there is no key
CHECKS = 2  # keys that are looked at, at once; each takes a core for a while
MOST_CHECKS, MOST_OF_ONE = 64, 16  # with those that wait for it, and of these from one address
_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,200}) *", re.IGNORECASE)


class Gate:
    """ASGI middleware. Behind it a request has a caller, who may ask as often as he does. No key and no header is ever
    written down.
    """

    def __init__(self, app: ASGIApp, *, service: Service):
        self._app, self._service = app, service
        self._rates, self._open = KeyRates(), OpenRequests(most_connections() // 4)
        self._unread = UnreadAnswers()
        self._keyed = False
        self._looked: float | None = None
        self._checks, self._checking = asyncio.Semaphore(CHECKS), Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            return await self._app(scope, receive, send)
        request = Request(scope)
        async with AsyncExitStack() as over:
            try:
                request.state.caller = caller = await self._caller(request)
                self._rates.count(scope, caller.id, caller.limits.requests_per_minute)
                over.enter_context(self._open.one(caller.id))
                send = over.enter_context(self._unread.of(caller.id, scope, receive, send))
                if is_change(scope):
                    receive = await over.enter_async_context(self._service.changes.one(caller.id, receive))
                elif is_watch(scope):
                    receive = await over.enter_async_context(self._service.watches.one(caller.id, receive))
                elif is_read(scope):
                    receive = await over.enter_async_context(self._service.reads.one(caller.id, receive))
            except RagcacheError as error:
                return await refusal(request, error)(scope, receive, send)
            await self._app(scope, receive, send)

    async def _caller(self, request: Request) -> Caller:
        if not await self._has_keys():
            check_local(request, self._service.origins)
            return Caller()
        key = await self._key(_token(request), request.client.host if request.client else "")
        if key is None:
            raise unknown_key("this key is not known, has expired, or was revoked")
        return Caller(key.id, key.scopes, key.collections, key.limits)

    async def _has_keys(self) -> bool:
        """Once there is one there always is: also a revoked one keeps the server from being open to all."""
        if not self._keyed and (self._looked is None or monotonic() - self._looked >= LOOK_S):
            self._keyed = await in_thread(self._service.catalog.keys.any)
            self._looked = monotonic()
        return self._keyed

    async def _key(self, token: str, host: str) -> Key | None:
        keys = self._service.catalog.keys
        if key := keys.known(token):
            return key
        if keys.seen(token):
            return await in_thread(keys.verify, token)
        if self._checking.total() >= MOST_CHECKS or self._checking[host] >= MOST_OF_ONE:
            raise RefusedRequest(429, "too many keys are being looked at", headers={"Retry-After": "2"})
        self._checking[host] += 1
        try:
            async with self._checks:
                return await in_thread(keys.verify, token)
        finally:
            self._checking[host] -= 1
            self._checking += Counter()  # without those that have none


def _token(request: Request) -> str:
    told = request.headers.getlist("authorization")
    found = _BEARER.fullmatch(told[0]) if len(told) == 1 else None
    if found is None:
        raise unknown_key("this server wants a key: send `Authorization: Bearer rk-…`")
    return found[1]
