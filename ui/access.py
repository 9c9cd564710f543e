"""Who sits in front of a tab: which server is asked, with whose key."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

import streamlit as st

from app.client.address import NamedServer, find_server
from app.client.connection import ServerConnection, ServerError
from ragcache.errors import ConfigError
from ui import bridge
from ui.markup import refusal

PATIENCE_S = 20.0  # with a server that has no room: a person waits no longer
PAGES = "pages"  # of the session: those that there are, by their part of the address
KEY = "access-key"  # of the session, and of the tab's own memory
GOOD = "access-key-that-was-taken"  # of the session
DENIED, FORBIDDEN = 401, 403
WRITTEN = re.compile(r"[\x21-\x7e]{1,200}")  # as a header can carry it


@lru_cache(maxsize=1)
def server() -> NamedServer:
    """That which this page was started for. Raises ConfigError."""
    found = find_server(None, env_file=None)
    if found is None:
        raise ConfigError("this page knows no server: start it by `ragcache ui`")
    return found


def connection() -> ServerConnection:
    """Of this tab, with its own key where it has one."""
    key = st.session_state.get(KEY) or server().key
    return ServerConnection(replace(server(), key=key), patience_s=PATIENCE_S)


def admitted(*, asks: bool) -> bool:
    """Whether the server knows who asks; else a key is asked for here, if it `asks`: before the tab has told what it
    remembers nobody knows that it has none. Raises ServerError where the server does not answer.
    """
    try:
        connection().ask("GET", "v1", "models")
    except ServerError as error:
        if error.answered != DENIED and not (error.answered == FORBIDDEN and st.session_state.get(KEY)):
            raise
        if asks:
            _ask_for_key()
        return False
    st.session_state[GOOD] = st.session_state.get(KEY)
    return True


def to_remember() -> dict[str, str]:
    """The tab's key, once the server has taken it: a wrong one would be there again after each reload."""
    key = st.session_state.get(KEY)
    return {KEY: key} if key and key == st.session_state.get(GOOD) else {}


def left() -> bool:
    return KEY in st.session_state and st.session_state[KEY] is None


def leave() -> None:
    """None, and not nothing: what the tab told when it was opened still has the key."""
    _take(None)


def _take(key: str | None) -> None:
    """Whoever comes next sees nothing of what somebody else asked and chose here."""
    for name in [one for one in st.session_state if one != bridge.NAME]:
        del st.session_state[name]
    st.session_state[KEY] = key


def _ask_for_key() -> None:
    wrong = st.session_state.get(KEY)
    with st.form("access", border=True):
        st.markdown("#### This server asks for a key")
        st.caption("Whoever runs it makes one by `ragcache keys create`. It stays in this tab, until you close it.")
        key = st.text_input("Key", type="password", placeholder="rk-…", autocomplete="off")
        if wrong:
            st.html(refusal("That key is not known here, has been revoked, or may read nothing."))
        if st.form_submit_button("Open", type="primary") and key.strip():
            if WRITTEN.fullmatch(key.strip()) is None:
                st.html(refusal("That is no key: it has letters, digits and hyphens, such as rk-…"))
                return
            _take(key.strip())
            st.rerun()
