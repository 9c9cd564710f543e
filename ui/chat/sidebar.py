"""Beside the chat: which collection is asked, and the conversations about all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import conversations
from app.client.answers import number
from app.client.connection import ServerConnection
from ui.markup import escape, refusal

COLLECTION, CONVERSATION = "collection", "c"  # of the page's address
CHOSEN, WORDS, MENU = "chat-collection", "chat-words", "chat-menu"  # of the session
OPEN, FRESH = "chat-open", "chat-new"  # actions
MOST = 200  # characters of a title
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))  # seconds
Card = Mapping[str, Any]


def choose(names: Sequence[str], opened: Card | None) -> str:
    """The collection that is asked: that of the open conversation, of the address, or the first."""
    wanted = opened["collection"] if opened else st.query_params.get(COLLECTION)
    st.session_state[CHOSEN] = wanted if wanted in names else names[0]
    st.sidebar.selectbox("Collection", names, key=CHOSEN, on_change=_choose)
    return str(st.session_state[CHOSEN])


def show(connection: ServerConnection, opened: Card | None) -> None:
    with st.sidebar:
        st.button("New chat", icon=":material/edit_square:", key="chat-fresh", on_click=start_anew, width="stretch")
        words = st.text_input(
            "Search", key=WORDS, placeholder="Search conversations", label_visibility="collapsed", max_chars=MOST
        )
        listed, more = conversations.page(connection, words.strip())
        if not listed:
            st.html(
                f'<p class="rc-hint">{"Nothing has these words." if words.strip() else "No conversations yet."}</p>'
            )
        st.html(f'<nav class="rc-talks">{"".join(_entry(one, opened) for one in listed)}</nav>')
        if more:
            st.html('<p class="rc-hint">Search to find older ones.</p>')


def menu(connection: ServerConnection, opened: Card) -> None:
    """What can be done with the open conversation."""
    name, title = str(opened["id"]), str(opened["title"])
    with st.popover("", icon=":material/more_horiz:", help="Rename, export or delete this conversation"):
        with st.form("chat-rename", border=False):
            told = st.text_input("Title", value=title, max_chars=MOST)
            if st.form_submit_button("Rename") and told.strip() and told != title:
                conversations.rename(connection, name, told.strip())
                st.rerun()
        _export(connection, name)
        if st.button("Delete this conversation", icon=":material/delete:", key="chat-delete"):
            conversations.delete(connection, name)
            start_anew()
            st.rerun()


def start_anew() -> None:
    chosen = st.session_state.get(CHOSEN)
    st.query_params.from_dict({COLLECTION: chosen} if chosen else {})


def _export(connection: ServerConnection, name: str) -> None:
    for form, suffix, mime in (("markdown", "md", "text/markdown"), ("json", "json", "application/json")):

        def data(form: str = form) -> bytes:
            return conversations.export(connection, name, form)

        st.download_button(
            f"Export as {'Markdown' if form == 'markdown' else 'JSON'}",
            data,
            file_name=f"conversation-{name}.{suffix}",
            mime=mime,
            key=f"chat-export-{form}",
            on_click="ignore",
        )


def _choose() -> None:
    """Another collection is asked in another conversation."""
    st.query_params.from_dict({COLLECTION: st.session_state[CHOSEN]})


def _entry(one: Card, opened: Card | None) -> str:
    here = opened is not None and one["id"] == opened["id"]
    title = str(one["title"]) or "New chat"
    state = ' aria-current="page"' if here else ""
    dots = '<span class="rc-dots" title="An answer is on its way"></span>' if one["answering"] else ""
    return (
        f'<button class="rc-talk" dir="auto" data-rc="{OPEN}" data-rc-value="{escape(str(one["id"]))}"{state} '
        f'title="{escape(title)}">{escape(title)}{dots}<small>{_ago(one)}{escape(str(one["collection"]))}</small></button>'
    )


def _ago(one: Card) -> str:
    """When something was last said there, by this machine's clock; nothing where the server does not tell."""
    said = number(str(one.get("updated", "")))
    if said is None:
        return ""
    passed = max(0.0, time.time() - said)
    told = next((f"{int(passed // seconds)} {unit}" for unit, seconds in UNITS if passed >= seconds), "now")
    return f"{told} · "


def missing() -> None:
    st.html(refusal("This conversation is not there: it never was, or somebody has deleted it."))
    st.button("Start a new chat", on_click=start_anew)
