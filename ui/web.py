"""The page as a web application, and what a browser may do with it: nothing from elsewhere, nothing to elsewhere.

Texts are shown so that they do nothing (`markup`). If one did all the same, the browser itself would refuse to run it,
and to ask another machine for anything. Pages of others, which a browser shows at the same time, are not answered.
Streamlit's own check of that lets in whatever runs at another port of this machine, and asks Amazon for its address.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose
from streamlit import config

FRAME = Path(__file__).parent / "frame.py"
INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def _known_scripts() -> str:
    """Those that Streamlit has written into its one page."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    return " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in INLINE.findall(page))


POLICY = "; ".join(
    [
        "default-src 'self'",
        f"script-src 'self' blob: {_known_scripts()}",  # the bridge is imported from a blob
        "style-src 'self' 'unsafe-inline'",  # Streamlit's own styles are made in the browser
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OwnOrigin:
    """Tells browsers the policy with every response, and answers to no page but ours."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif not is_ours(Headers(scope=scope), str(config.get_option("server.address"))):
            refused: ASGIApp = PlainTextResponse("This page is for itself alone.", 403)
            await (refused if scope["type"] == "http" else WebSocketClose(1008))(scope, receive, send)
        else:
            await self._app(scope, receive, _with_policy(send) if scope["type"] == "http" else send)


def is_ours(headers: Mapping[str, str], address: str) -> bool:
    """Whether no page from elsewhere asks. On the loopback the host has one of its names: another site's name may be
    made to lead there.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if is_loopback(address) and not is_loopback(urlsplit(f"//{host}").hostname or ""):
        return False
    return origin is None or urlsplit(origin).netloc == host


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _with_policy(send: Send) -> Send:
    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return told


app = st.App(FRAME, middleware=[Middleware(OwnOrigin)])
