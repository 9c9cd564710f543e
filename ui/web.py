"""The page as a web application, and what a browser may do with it: nothing from elsewhere, nothing to elsewhere.

Texts are shown so that they do nothing (`markup`). If one did all the same, the browser itself would refuse to run it,
and to ask another machine for anything.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """Tells browsers the policy, with every response."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, told if scope["type"] == "http" else send)


app = st.App(FRAME, middleware=[Middleware(OwnOrigin)])
