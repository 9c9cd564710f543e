"""The chat: a conversation about a collection, its sources beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import conversations, library
from app.client.connection import ServerConnection, ServerError
from app.client.conversations import FollowedAnswer
from ui import access
from ui.bridge import Action
from ui.chat import comparison, history, sidebar, turn
from ui.chat.sidebar import CONVERSATION
from ui.chat.source import show_source
from ui.markup import escape, label, refusal

SOURCE = "source"  # of the page's address: NUMBER:SOURCE
EDITED, ALL = "chat-edited", "chat-all"  # of the session
CITE, CLOSE, ASK = "cite", "close", "chat-ask"  # actions
LONGEST = 200_000  # characters of a question
MISSING = 404
Card = Mapping[str, Any]
Message = Mapping[str, Any]


def show(action: Action | None) -> None:
    connection = access.connection()
    _act(action)
    names = [str(one["name"]) for one in library.listed_collections(connection)]
    if not names:
        _welcome()
        return
    try:
        opened = _opened(connection)
    except ServerError as error:
        if error.answered != MISSING:
            raise
        sidebar.show(connection, None)
        sidebar.missing()
        return
    collection = sidebar.choose(names, opened)
    sidebar.show(connection, opened)
    asked = st.chat_input(f"Ask about {label(collection, 60)}", max_chars=LONGEST)
    if action is not None and action.name == ASK:
        asked = action.value
    if asked and asked.strip() and not (opened and (opened["answering"] or turn.sending(str(opened["id"])))):
        opened = opened or conversations.create(connection, collection)
        st.query_params.from_dict({CONVERSATION: str(opened["id"])})
        turn.send(connection, str(opened["id"]), asked.strip())
    if opened is None:
        _beginning(connection, collection)
    else:
        _conversation(connection, opened, collection)


def _act(action: Action | None) -> None:
    if action is None:
        return
    if action.name == CITE:
        st.query_params[SOURCE] = action.value
    elif action.name == CLOSE and SOURCE in st.query_params:
        del st.query_params[SOURCE]
    elif action.name == sidebar.OPEN:
        st.query_params.from_dict({CONVERSATION: action.value})
    elif action.name == history.EARLIER:
        st.session_state[ALL] = st.query_params.get(CONVERSATION)


def _opened(connection: ServerConnection) -> Card | None:
    name = st.query_params.get(CONVERSATION)
    return conversations.card(connection, name) if name else None


def _welcome() -> None:
    st.html(
        '<div class="rc-empty"><h2>Ask your documents</h2><p>There is nothing to ask yet. Add files, or begin with '
        "the sample documents: that takes a minute.</p></div>"
    )
    if page := st.session_state.get(access.PAGES, {}).get("documents"):
        st.page_link(page, label="Add documents", icon=":material/upload_file:")


def _beginning(connection: ServerConnection, collection: str) -> None:
    st.html(f'<div class="rc-empty"><h2>What do you want to know from “{escape(collection)}”?</h2></div>')
    questions = library.suggested_questions(connection, collection)
    told = "".join(
        f'<button class="rc-suggestion" dir="auto" data-rc="{ASK}" data-rc-value="{escape(one)}">{escape(one)}</button>'
        for one in questions
    )
    st.html(f'<div class="rc-suggestions">{told}</div>')


# -- a conversation ---------------------------------------------------------------------------------------------------


def _conversation(connection: ServerConnection, opened: Card, collection: str) -> None:
    name = str(opened["id"])
    messages = conversations.messages(connection, name)
    place = _cited(messages)
    chat, beside = st.columns([3, 2], gap="large") if place else (st.container(), None)
    with chat:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.html(f'<h1 class="rc-title" dir="auto">{escape(str(opened["title"]) or "New chat")}</h1>')
            sidebar.menu(connection, opened)
        _talk(connection, name, messages, answering=opened["answering"] is True)
    if place and beside is not None:
        with beside:
            number, at = place
            show_source(connection, collection, messages[number]["citations"], number, at)


def _talk(connection: ServerConnection, name: str, messages: Sequence[Message], *, answering: bool) -> None:
    sent = turn.sending(name)
    new = sent is not None or answering
    kept = list(messages) if new else list(messages[: _last_question(messages)])
    _earlier(name, kept)
    if new:
        _answering(connection, name, messages, sent)
    elif len(kept) < len(messages):
        _last(connection, name, messages, len(kept))
    _failure(connection, name)


def _earlier(name: str, kept: Sequence[Message]) -> None:
    first = 0 if st.session_state.get(ALL) == name else max(0, len(kept) - history.SHOWN)
    hidden = history.earlier(first) if first else ""
    st.html(f'<div class="rc-history">{hidden}{history.said(kept[first:], first)}</div>')


def _last(connection: ServerConnection, name: str, messages: Sequence[Message], first: int) -> None:
    """The last exchange, and what can be done with it."""
    asked, *behind = messages[first:]
    edited = st.session_state.get(EDITED) == asked["id"]
    st.html(history.question(str(asked["content"])))
    place = st.empty()
    if behind:
        plain = turn.comparison(name)
        place.html(history.answer(behind[-1], len(messages) - 1))
        if plain is not None:
            st.html(comparison.beside(behind[-1], plain))
    if edited:
        _edit(connection, name, asked)
        return
    with st.container(horizontal=True, key="chat-actions"):
        st.button(
            "Again", icon=":material/refresh:", key="chat-again", on_click=_resend, args=(connection, name, asked)
        )
        st.button("Edit", icon=":material/edit:", key="chat-edit", on_click=_begin_edit, args=(asked["id"],))
        if behind:
            st.button(
                "Answer without cache",
                icon=":material/compare_arrows:",
                key="chat-compare",
                on_click=turn.compare,
                args=(connection, name, str(asked["content"])),
                help="Computes the same answer from nothing, and measures how long that takes.",
            )


def _answering(
    connection: ServerConnection, name: str, messages: Sequence[Message], sent: turn.SentQuestion | None
) -> None:
    """The answer that is on its way, from its start: whoever reloads sees all of it."""
    asked, place = st.empty(), st.empty()
    if sent is not None and not sent.compares:
        asked.html(history.question(sent.question))
        place.html(history.under_way("", (), len(messages)))
    st.button(
        "Stop", icon=":material/stop_circle:", key="chat-stop", on_click=conversations.stop, args=(connection, name)
    )
    if sent is not None and not turn.taken(sent):
        st.rerun()
    answer = FollowedAnswer()
    for answer in turn.painted(conversations.follow(connection, name)):
        if answer.compares:
            plain = {"content": answer.text, "report": None}
            place.html(comparison.beside(messages[-1], plain))
            continue
        if answer.question and (sent is None or sent.compares):
            asked.html(history.question(answer.question))
        place.html(history.under_way(answer.text, answer.citations, len(messages) + 1))
    _ended(name, answer)
    st.rerun()


def _ended(name: str, answer: FollowedAnswer) -> None:
    if answer.error:
        turn.fail(name, answer.question, answer.instead_of, answer.error)
    elif answer.compares and answer.message is not None:
        turn.keep_comparison(name, answer.message)
    elif not answer.compares:
        turn.forget_comparison()


def _failure(connection: ServerConnection, name: str) -> None:
    failed = turn.failed(name)
    if failed is None:
        return
    st.html(history.question(failed.question))
    st.html(refusal(failed.reason))
    again = (connection, name, failed.question, failed.instead_of)
    st.button("Send it again", icon=":material/refresh:", key="chat-resend", on_click=turn.send, args=again)


def _edit(connection: ServerConnection, name: str, asked: Message) -> None:
    with st.form("chat-edit-form", border=True):
        text = st.text_area("Your question", value=str(asked["content"]), max_chars=LONGEST)
        st.html('<p class="rc-hint">Its answer is replaced.</p>')
        with st.container(horizontal=True):
            ask, leave = st.form_submit_button("Ask", type="primary"), st.form_submit_button("Leave it")
    if ask and text.strip():
        turn.send(connection, name, text.strip(), int(asked["id"]))
    if leave or (ask and text.strip()):
        st.session_state.pop(EDITED, None)
        st.rerun()


def _begin_edit(message_id: int) -> None:
    st.session_state[EDITED] = message_id


def _resend(connection: ServerConnection, name: str, asked: Message) -> None:
    turn.send(connection, name, str(asked["content"]), int(asked["id"]))


def _last_question(messages: Sequence[Message]) -> int:
    """Its place, or their number."""
    return next((place for place in reversed(range(len(messages))) if messages[place]["role"] == "user"), len(messages))


def _cited(messages: Sequence[Message]) -> tuple[int, int] | None:
    """Which citation of which answer is open."""
    number, _, at = st.query_params.get(SOURCE, "").partition(":")
    if not (number.isdecimal() and at.isdecimal() and int(number) < len(messages)):
        return None
    return (int(number), int(at)) if int(at) < len(messages[int(number)]["citations"]) else None
