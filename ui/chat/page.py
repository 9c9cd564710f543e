"""The chat: a conversation about a collection, its sources beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.client import conversations, library
from app.client.connection import ServerConnection, ServerError
from ui import access
from ui.bridge import Action
from ui.chat import history, sidebar, talk, turn
from ui.chat.sidebar import CONVERSATION
from ui.documents.sending import FIRST, asks_for_samples, forbidden, load_samples
from ui.markup import escape, refusal

CITE, CLOSE, ASK = "cite", "close", "chat-ask"  # actions
QUESTION = "chat-question"  # of the session: what is being written
LONGEST_NAME = 60  # of a collection, where one writes
MISSING = 404
GONE = "The collection “{}” is not there any more. Here another is asked."
Card = Mapping[str, Any]


def show(action: Action | None) -> None:
    connection = access.connection()
    if action is not None:
        _act(action)
    names = [str(one["name"]) for one in library.listed_collections(connection)]
    if not names:
        _welcome(connection)
        return
    try:
        opened = _opened(connection)
    except ServerError as error:
        if error.answered != MISSING:
            raise
        sidebar.show(connection, None)
        sidebar.missing()
        return
    meant = st.session_state.get(sidebar.CHOSEN)  # where what was typed was typed
    collection = sidebar.choose(names, opened)
    st.chat_input(f"Ask about {_short(collection)}", key=QUESTION, max_chars=talk.LONGEST, on_submit=_take_question)
    if opened is None and meant not in (None, *names) and (question := turn.typed("")):
        turn.take_back("")
        turn.refuse("", question, GONE.format(meant))
    opened = _ask(connection, opened, collection)
    sidebar.show(connection, opened)
    if opened is None:
        with st.container(key="chat-column"):
            _beginning(connection, collection)
    else:
        talk.show(connection, opened, collection)


def _act(action: Action) -> None:
    if action.name == CITE:
        st.query_params[talk.SOURCE] = action.value
    elif action.name == CLOSE and talk.SOURCE in st.query_params:
        del st.query_params[talk.SOURCE]
    elif action.name == sidebar.OPEN:
        st.query_params.from_dict({CONVERSATION: action.value})
    elif action.name == history.EARLIER:
        st.session_state[talk.ALL] = st.query_params.get(CONVERSATION)
    elif action.name == ASK:
        turn.type_in(st.query_params.get(CONVERSATION, ""), action.value)


def _take_question() -> None:
    """Before the page is run, so that a server that is away just now loses nothing."""
    if text := str(st.session_state.get(QUESTION) or "").strip():
        turn.type_in(st.query_params.get(CONVERSATION, ""), text)


def _opened(connection: ServerConnection) -> Card | None:
    name = st.query_params.get(CONVERSATION)
    return conversations.card(connection, name) if name else None


def _ask(connection: ServerConnection, opened: Card | None, collection: str) -> Card | None:
    """Send what was typed, unless an answer is under way here; the conversation that is open then."""
    name = str(opened["id"]) if opened else ""
    question = turn.typed(name)
    if not question or (opened and (opened["answering"] or turn.under_way(name))):
        return opened
    try:
        opened = opened or conversations.create(connection, collection)
    except ServerError as error:
        turn.take_back(name)
        turn.refuse("", question, str(error))
        return None
    st.query_params.from_dict({CONVERSATION: str(opened["id"])})
    turn.send(connection, str(opened["id"]), question)
    turn.dismiss(name)
    turn.take_back(name)  # not sooner: a click meanwhile ends this run, and the next one would know of no question
    return opened


def _short(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def _welcome(connection: ServerConnection) -> None:
    with st.container(key="chat-column"):
        st.html(
            '<div class="rc-empty"><h2>Ask your documents</h2><p>There is nothing to ask yet. Add files, or begin with '
            "the sample documents: that takes a minute.</p></div>"
        )
        if (page := st.session_state.get(access.PAGES, {}).get("documents")) is None:
            return
        with st.container(horizontal=True, vertical_alignment="center"):
            if not forbidden(connection) and asks_for_samples():
                load_samples(connection, FIRST, new=True)
                st.switch_page(page)  # which shows how far they are
            st.page_link(page, label="Add documents", icon=":material/upload_file:")


def _beginning(connection: ServerConnection, collection: str) -> None:
    st.html(f'<div class="rc-empty"><h2>What do you want to know from “{escape(collection)}”?</h2></div>')
    questions = library.suggested_questions(connection, collection)
    told = "".join(
        f'<button class="rc-suggestion" dir="auto" data-rc="{ASK}" data-rc-value="{escape(one)}">{escape(one)}</button>'
        for one in questions
    )
    st.html(f'<div class="rc-suggestions">{told}</div>')
    if failed := turn.failed(""):
        st.html(history.question(failed.question) + refusal(failed.reason))
        st.button("Send it again", icon=":material/refresh:", on_click=turn.type_in, args=("", failed.question))
