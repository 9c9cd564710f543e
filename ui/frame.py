"""What Streamlit runs at each click: the look, the door, and the page that is open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.client.connection import ServerError
from ragcache.errors import RagcacheError
from ui import access, bridge
from ui.bridge import Action
from ui.cache.page import show as cache_page
from ui.chat.page import show as chat_page
from ui.documents.page import show as documents_page
from ui.markup import refusal
from ui.settings import show as settings_page

FOLDER = Path(__file__).parent
STYLE = "\n".join(
    (FOLDER / name).read_text(encoding="utf-8")
    for name in (
        "style.css",
        "chat/style.css",
        "documents/style.css",
        "cache/style.css",
    )
)
ICONS = {"chat": "forum", "documents": "description", "cache": "bolt", "settings": "tune"}
LEAVING = "This tab forgets its key."
LIGHT = (
    "--rc-good: #2b7a3f; --rc-warm: #9a5b00; --rc-bad: #a5281b; --rc-muted: #5b6266; --rc-line: #dcd8cd;"
    " --rc-paper: #fcfbf8;"
)
DARK = (
    "--rc-good: #7ccf8e; --rc-warm: #e5b567; --rc-bad: #f19a8e; --rc-muted: #a4acb0; --rc-line: #343c40;"
    " --rc-paper: #14181a;"
)


def show() -> None:
    st.set_page_config(page_title="RAGCache", page_icon=str(FOLDER / "icon.svg"), layout="wide")
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
    pages = {
        "chat": st.Page(lambda: chat_page(heard[0]), title="Chat", url_path="chat", default=True),
        "documents": st.Page(lambda: documents_page(heard[0]), title="Documents", url_path="documents"),
        "cache": st.Page(lambda: cache_page(heard[0]), title="Cache", url_path="cache"),
        "settings": st.Page(lambda: settings_page(heard[0]), title="Settings", url_path="settings"),
    }
    # Before the tab tells what it knows: that begins a new run, which shows the page that the browser knows by then.
    opened = st.navigation([*pages.values()], position="hidden")
    known = bridge.remembered()
    if known and access.KEY in known and access.KEY not in st.session_state:
        st.session_state[access.KEY] = known[access.KEY]
    told = access.to_remember()
    heard[0] = bridge.listen(told, forget=access.left())
    if not access.admitted(asks=known is not None):
        return
    if access.to_remember() not in (told, known):
        st.rerun()  # the server has taken the key only now
    st.session_state[access.PAGES] = pages
    _links(pages)
    opened.run()


def _links(pages: Mapping[str, StreamlitPage]) -> None:
    """Streamlit's own would want the icons in the pages, and fetch that of the open one from Google for the tab."""
    with st.sidebar, st.container(key="rc-pages", gap="xxsmall"):
        for name, page in pages.items():
            st.page_link(page, icon=f":material/{ICONS[name]}:", width="stretch")
        if st.session_state.get(access.KEY):
            st.button("Leave", icon=":material/logout:", on_click=access.leave, help=LEAVING, type="tertiary")


if __name__ == "__main__":
    show()
