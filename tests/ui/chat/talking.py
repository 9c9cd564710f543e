"""The page of the chat, as tests run it: what somebody does there, and what it shows."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from streamlit.testing.v1 import AppTest

from ui import access

PATIENCE_S = 60.0
QUESTION, SECOND = "Who designed the lighthouse?", "How tall is it?"
READER = "X-Key-Of-A-Reader"  # of another collection; kept beside the client's own, and read by no server


def script() -> None:
    import streamlit as st

    from ui.bridge import Action
    from ui.chat.page import show

    done = st.session_state.get("done", None)
    st.session_state["done"] = None
    show(Action(*done) if done else None)


def enter(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGCACHE_API_KEY", key)
    access.server.cache_clear()


def ask(client: httpx2.Client, name: str, question: str) -> None:
    body = {"question": question, "stream": False, "max_tokens": 6}
    assert client.post(f"/v1/conversations/{name}/messages", json=body).status_code == 200


def said(client: httpx2.Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/conversations/{name}/messages").json()["data"]
    return found


def shown(page: AppTest) -> str:
    assert not page.exception, page.exception
    return "\n".join(str(one.proto.body) for one in page.get("html"))


def act(page: AppTest, name: str, value: str = "") -> str:
    page.session_state["done"] = (name, value)
    return shown(page.run())


def opened(page: AppTest, name: str) -> str:
    page.query_params["c"] = name
    return shown(page.run())


def button(page: AppTest, text: str) -> str:
    (found,) = [one for one in page.button if one.label == text]
    return shown(found.click().run())


def questions(html: str) -> list[str]:
    return [part.split("</div>")[0] for part in html.split('<div class="rc-question" dir="auto">')[1:]]
