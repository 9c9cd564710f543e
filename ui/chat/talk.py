"""One conversation: what was said, the answer that is on its way, and what can be done with the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import conversations
from app.client.answers import number
from app.client.connection import ServerConnection, ServerError
from app.client.conversations import FollowedAnswer
from ui.chat import comparison, history, sidebar, turn
from ui.chat.source import show_source
from ui.markup import escape, refusal

SOURCE = "source"  # of the page's address: NUMBER:SOURCE
EDITED, ALL = "chat-edited", "chat-all"  # of the session
LONGEST = 200_000  # characters of a question
MISSING = 404
Card = Mapping[str, Any]
Message = Mapping[str, Any]


def show(connection: ServerConnection, opened: Card, collection: str) -> None:
    name = str(opened["id"])
    messages = conversations.messages(connection, name)
    place = _cited(messages)
    chat, beside = st.columns([3, 2], gap="large") if place else (st.container(), None)
    if place and beside is not None:
        with beside:  # first: the answer may take its time
            number, at = place
            show_source(connection, collection, messages[number]["citations"], number, at)
    with chat, st.container(key="chat-column"):
        with st.container(horizontal=True, vertical_alignment="center", key="chat-head"):
            st.html(f'<h1 class="rc-title" dir="auto">{escape(str(opened["title"]) or "New chat")}</h1>')
            sidebar.menu(connection, opened)
        _talk(connection, name, messages, answering=opened["answering"] is True)


def _talk(connection: ServerConnection, name: str, messages: Sequence[Message], *, answering: bool) -> None:
    sent = turn.sending(name)
    if sent is not None or answering:
        _answering(connection, name, messages, sent)
        return
    first = _last_question(messages)
    st.html(_earlier(name, messages[:first]))
    if not turn.settled(name):
        _settle(connection, name, messages)
        if turn.typed(name):  # which waited for that
            st.rerun()
    if first < len(messages):
        _last(connection, name, messages, first)
    _failure(connection, name, messages, first)


def _earlier(name: str, kept: Sequence[Message]) -> str:
    first = 0 if st.session_state.get(ALL) == name else max(0, len(kept) - history.SHOWN)
    hidden = history.earlier(first) if first else ""
    return f'<div class="rc-history">{hidden}{history.said(kept[first:], first)}</div>'


# -- an answer under way ----------------------------------------------------------------------------------------------


def _answering(
    connection: ServerConnection, name: str, messages: Sequence[Message], sent: turn.SentQuestion | None
) -> None:
    """From its start: whoever reloads sees all of it. Its sources open when it is one of the messages.

    What stands there is replaced, never emptied first: a place that is empty for a moment lets all below it jump.
    """
    kept = _kept(messages, sent.instead_of if sent else None)
    before = st.html(_earlier(name, kept))
    if sent is not None and not sent.compares:
        asked, place = st.html(history.question(sent.question)), st.html(history.under_way("", (), len(messages)))
    else:
        asked, place = st.empty(), st.empty()
    with st.container(horizontal=True, key="chat-actions"):
        st.button(
            "Stop", icon=":material/stop_circle:", key="chat-stop", on_click=conversations.stop, args=(connection, name)
        )
    _waiting(name)
    if sent is not None and not turn.taken(sent):
        st.rerun()
    answer = FollowedAnswer()
    for answer in turn.painted(conversations.follow(connection, name)):
        if answer.compares:
            place.html(comparison.beside(messages[-1], {"content": answer.text, "report": None}))
            continue
        if len(kept) != len(now := _kept(messages, answer.instead_of)):
            kept = now
            before.html(_earlier(name, kept))
        if answer.question and (sent is None or sent.compares):
            asked.html(history.question(answer.question))
        place.html(history.under_way(answer.text, answer.citations, len(messages)))
    turn.settle(name, answer, _newest(messages))
    st.rerun()


def _settle(connection: ServerConnection, name: str, messages: Sequence[Message]) -> None:
    """Learn how the last answer ended, of which this session has not seen the end: an error is told once more."""
    answer = FollowedAnswer()
    try:
        *_, answer = conversations.follow(connection, name)
    except ServerError as error:
        if error.answered != MISSING:  # nothing has been asked here
            raise
    turn.settle(name, answer, _newest(messages))


def _waiting(name: str) -> None:
    """What was typed meanwhile."""
    if question := turn.typed(name):
        st.html(f'{history.question(question)}<p class="rc-hint">It is asked when this answer has ended.</p>')
        st.button("Do not ask it", key="chat-take-back", on_click=turn.take_back, args=(name,))


def _kept(messages: Sequence[Message], instead_of: int | None) -> Sequence[Message]:
    """Those in front of the question whose place is taken."""
    if instead_of is None:
        return messages
    return messages[: next((n for n, one in enumerate(messages) if one["id"] == instead_of), len(messages))]


# -- the last exchange ------------------------------------------------------------------------------------------------


def _last(connection: ServerConnection, name: str, messages: Sequence[Message], first: int) -> None:
    asked, *behind = messages[first:]
    st.html(history.question(str(asked["content"])))
    if behind:
        st.html(history.answer(behind[-1], len(messages) - 1))
        if (plain := turn.comparison(name, _newest(messages))) is not None:
            st.html(comparison.beside(behind[-1], plain))
    if st.session_state.get(EDITED) == asked["id"]:
        _edit(connection, name, asked, _seen(messages))
    else:
        _actions(connection, name, asked, _seen(messages), answered=bool(behind))


def _actions(connection: ServerConnection, name: str, asked: Message, seen: int | None, *, answered: bool) -> None:
    question = str(asked["content"])
    with st.container(horizontal=True, key="chat-actions"):
        again = (connection, name, question, int(asked["id"]), seen)
        st.button("Again", icon=":material/refresh:", key="chat-again", on_click=turn.send, args=again)
        st.button("Edit", icon=":material/edit:", key="chat-edit", on_click=_begin_edit, args=(asked["id"],))
        if answered:
            st.button(
                "Answer without cache",
                icon=":material/compare_arrows:",
                key="chat-compare",
                on_click=turn.compare,
                args=(connection, name, question, seen),
                help="Computes the same answer from nothing, and measures how long that takes.",
            )


def _edit(connection: ServerConnection, name: str, asked: Message, seen: int | None) -> None:
    with st.form("chat-edit-form", border=True):
        text = st.text_area("Your question", value=str(asked["content"]), max_chars=LONGEST)
        st.html('<p class="rc-hint">Its answer is replaced.</p>')
        with st.container(horizontal=True):
            ask, leave = st.form_submit_button("Ask", type="primary"), st.form_submit_button("Leave it")
    if ask and text.strip():
        turn.send(connection, name, text.strip(), int(asked["id"]), seen)
    if leave or (ask and text.strip()):
        st.session_state.pop(EDITED, None)
        st.rerun()


def _begin_edit(message_id: int) -> None:
    st.session_state[EDITED] = message_id


def _failure(connection: ServerConnection, name: str, messages: Sequence[Message], last: int) -> None:
    """`last`: the place of the last question, in whose stead alone one is sent again: what stands behind an earlier one
    is kept.
    """
    failed, seen = turn.failed(name), _seen(messages)
    if failed is None:
        return
    place = next((failed.instead_of for one in messages[last : last + 1] if one["id"] == failed.instead_of), None)
    stands = failed.compares or (place is not None and messages[last]["content"] == failed.question)
    st.html(refusal(failed.reason) if stands else history.question(failed.question) + refusal(failed.reason))
    with st.container(horizontal=True):
        if failed.compares:
            again, arguments = "Try again", (connection, name, failed.question, seen)
            st.button(again, icon=":material/refresh:", key="chat-resend", on_click=turn.compare, args=arguments)
        else:
            resent = (connection, name, failed.question, place, seen)
            st.button("Send it again", icon=":material/refresh:", key="chat-resend", on_click=turn.send, args=resent)
        st.button("Dismiss", key="chat-dismiss", on_click=turn.dismiss, args=(name,))


def _newest(messages: Sequence[Message]) -> int | None:
    return int(messages[-1]["id"]) if messages else None


def _seen(messages: Sequence[Message]) -> int | None:
    """The newest, for a server that asks for it; one of before keeps no notes of answers either."""
    return _newest(messages) if messages and "notes" in messages[-1] else None


def _last_question(messages: Sequence[Message]) -> int:
    """Its place, or their number."""
    return next((place for place in reversed(range(len(messages))) if messages[place]["role"] == "user"), len(messages))


def _cited(messages: Sequence[Message]) -> tuple[int, int] | None:
    """Which citation of which answer is open."""
    message, at = (number(one) for one in (st.query_params.get(SOURCE, "") + ":").split(":")[:2])
    if message is None or at is None or message >= len(messages):
        return None
    return (message, at) if at < len(messages[message]["citations"]) else None
