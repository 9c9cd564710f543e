"""What Streamlit runs at each click: the look, the door, and the page that is open."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.client.connection import ServerError
from ragcache.errors import RagcacheError
from ui import access, bridge
from ui.bridge import Action
from ui.cache.page import show as cache_page
from ui.chat.page import show as chat_page
from ui.documents.page import show as documents_page
from ui.markup import refusal
from ui.settings import show as settings_page

STYLE = "\n".join(
    (Path(__file__).parent / name).read_text(encoding="utf-8")
    for name in (
        "style.css",
        "chat/style.css",
        "documents/style.css",
    )
)
LIGHT = "--rc-good: #2b7a3f; --rc-warm: #9a5b00; --rc-bad: #a5281b; --rc-muted: #5b6266; --rc-line: #dcd8cd;"
DARK = "--rc-good: #7ccf8e; --rc-warm: #e5b567; --rc-bad: #f19a8e; --rc-muted: #a4acb0; --rc-line: #343c40;"


def show() -> None:
    st.set_page_config(page_title="RAGCache", page_icon=":material/bolt:", layout="wide")
    palette = DARK if st.context.theme.type == "dark" else LIGHT
    st.html(f"<style>:root {{ {palette} }}\n{STYLE}</style>")
    try:
        _let_in()
    except RagcacheError as error:
        st.html(refusal(str(error)))
        if isinstance(error, ServerError):
            st.button("Try again")


def _let_in() -> None:
    heard: list[Action | None] = [None]
    pages = [
        st.Page(lambda: chat_page(heard[0]), title="Chat", icon=":material/forum:", url_path="chat", default=True),
        st.Page(
            lambda: documents_page(heard[0]), title="Documents", icon=":material/description:", url_path="documents"
        ),
        st.Page(lambda: cache_page(heard[0]), title="Cache", icon=":material/bolt:", url_path="cache"),
        st.Page(lambda: settings_page(heard[0]), title="Settings", icon=":material/tune:", url_path="settings"),
    ]
    # Before the tab tells what it knows: that begins a new run, which shows the page that the browser knows by then.
    opened = st.navigation(pages)
    known = bridge.remembered()
    if known and access.KEY in known and access.KEY not in st.session_state:
        st.session_state[access.KEY] = known[access.KEY]
    key = st.session_state.get(access.KEY)
    heard[0] = bridge.listen({access.KEY: key} if key else {})
    if not access.admitted():
        return
    names = ("chat", "documents", "cache", "settings")
    st.session_state[access.PAGES] = dict(zip(names, pages, strict=True))
    opened.run()


if __name__ == "__main__":
    show()
