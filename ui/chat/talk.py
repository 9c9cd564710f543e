"""One conversation: what was said, the answer that is on its way, and what can be done with the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import conversations
from app.client.answers import number
from app.client.connection import ServerConnection, ServerError
from app.client.conversations import FollowedAnswer
from ui.chat import comparison, history, sidebar, turn
from ui.chat.shown import Message, ShownConversation
from ui.chat.source import show_source
from ui.markup import escape, refusal

SOURCE = "source"  # of the page's address: NUMBER:SOURCE
EDITED, ALL = "chat-edited", "chat-all"  # of the session
LONGEST = 200_000  # characters of a question
EXCHANGE = 2  # messages
MISSING = 404
Card = Mapping[str, Any]


def show(connection: ServerConnection, opened: Card, collection: str) -> None:
    name = str(opened["id"])
    shown = _shown(connection, name)
    place = _cited(shown)
    chat, beside = st.columns([3, 2], gap="large") if place else (st.container(), None)
    if place and beside is not None:
        with beside:  # first: the answer may take its time
            show_source(connection, collection, *place)
    with chat, st.container(key="chat-column"):
        with st.container(horizontal=True, vertical_alignment="center", key="chat-head"):
            st.html(f'<h1 class="rc-title" dir="auto">{escape(str(opened["title"]) or "New chat")}</h1>')
            sidebar.menu(connection, opened)
        _talk(connection, name, shown, answering=opened["answering"] is True)


def _shown(connection: ServerConnection, name: str) -> ShownConversation:
    """Its end, or all of it, where somebody wants to see that, or what an earlier answer cites."""
    if st.session_state.get(ALL) != name:
        end = ShownConversation(*conversations.messages(connection, name, history.SHOWN + EXCHANGE))
        cited, _ = _named()
        if cited is None or cited >= end.earlier:
            return end
    return ShownConversation(*conversations.messages(connection, name))


def _talk(connection: ServerConnection, name: str, shown: ShownConversation, *, answering: bool) -> None:
    sent = turn.sending(name)
    if sent is not None or answering:
        _answering(connection, name, shown, sent)
        return
    st.html(_earlier(name, shown, shown.last_question))
    if not turn.settled(name):
        _settle(connection, name, shown)
        if turn.typed(name):  # which waited for that
            st.rerun()
    if shown.last_exchange:
        _last(connection, name, shown)
    _failure(connection, name, shown)


def _earlier(name: str, shown: ShownConversation, kept: int) -> str:
    """The first `kept` of what is shown, but for those that nobody has asked for."""
    first = 0 if st.session_state.get(ALL) == name else max(0, kept - history.SHOWN)
    place = shown.earlier + first
    hidden = history.earlier(place) if place else ""
    return f'<div class="rc-history">{hidden}{history.said(shown.messages[first:kept], place)}</div>'


# -- an answer under way ----------------------------------------------------------------------------------------------


def _answering(
    connection: ServerConnection, name: str, shown: ShownConversation, sent: turn.SentQuestion | None
) -> None:
    """From its start: whoever reloads sees all of it. Its sources open when it is one of the messages.

    What stands there is replaced, never emptied first: a place that is empty for a moment lets all below it jump.
    """
    kept = shown.kept(sent.instead_of if sent else None)
    before = st.html(_earlier(name, shown, kept))
    if sent is not None and not sent.compares:
        asked, place = st.html(history.question(sent.question)), st.html(history.under_way("", (), shown.next))
    else:
        asked, place = st.empty(), st.empty()
    with st.container(horizontal=True, key="chat-actions"):
        st.button("Stop", icon=":material/stop_circle:", key="chat-stop", on_click=turn.stop, args=(connection, name))
    _waiting(name)
    if sent is not None and not turn.taken(sent):
        st.rerun()
    answer = FollowedAnswer()
    with turn.followed(connection, name) as answers:
        for answer in turn.painted(answers):
            if answer.compares:
                place.html(comparison.beside(shown.messages[-1], {"content": answer.text, "report": None}))
                continue
            if kept != (now := shown.kept(answer.instead_of)):
                kept = now
                before.html(_earlier(name, shown, kept))
            if answer.question and (sent is None or sent.compares):
                asked.html(history.question(answer.question))
            place.html(history.under_way(answer.text, answer.citations, shown.next))
    turn.settle(name, answer, shown.newest)
    st.rerun()


def _settle(connection: ServerConnection, name: str, shown: ShownConversation) -> None:
    """Learn how the last answer ended, of which this session has not seen the end: an error is told once more."""
    answer = FollowedAnswer()
    try:
        with turn.followed(connection, name) as answers:
            (answer,) = deque(answers, maxlen=1)
    except ServerError as error:
        if error.answered != MISSING:  # nothing has been asked here
            raise
    turn.settle(name, answer, shown.newest)


def _waiting(name: str) -> None:
    """What was typed meanwhile."""
    if question := turn.typed(name):
        st.html(f'{history.question(question)}<p class="rc-hint">It is asked when this answer has ended.</p>')
        st.button("Do not ask it", key="chat-take-back", on_click=turn.take_back, args=(name,))


# -- the last exchange ------------------------------------------------------------------------------------------------


def _last(connection: ServerConnection, name: str, shown: ShownConversation) -> None:
    asked, *behind = shown.last_exchange
    st.html(history.question(str(asked["content"])))
    if behind:
        st.html(history.answer(behind[-1], shown.next - 1, just_come=turn.just_come(name)))
        if (plain := turn.comparison(name, shown.newest)) is not None:
            st.html(comparison.beside(behind[-1], plain))
    if st.session_state.get(EDITED) == asked["id"]:
        _edit(connection, name, asked, shown.seen)
    else:
        _actions(connection, name, asked, shown.seen, answered=bool(behind))


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


def _failure(connection: ServerConnection, name: str, shown: ShownConversation) -> None:
    """In the last question's stead alone one is sent again: what stands behind an earlier one is kept."""
    failed, seen = turn.failed(name), shown.seen
    if failed is None:
        return
    asked = next(iter(shown.last_exchange), None)
    place = failed.instead_of if asked is not None and asked["id"] == failed.instead_of else None
    stands = failed.compares or (asked is not None and place is not None and asked["content"] == failed.question)
    st.html(refusal(failed.reason) if stands else history.question(failed.question) + refusal(failed.reason))
    with st.container(horizontal=True):
        if failed.compares:
            again, arguments = "Try again", (connection, name, failed.question, seen)
            st.button(again, icon=":material/refresh:", key="chat-resend", on_click=turn.compare, args=arguments)
        else:
            resent = (connection, name, failed.question, place, seen)
            st.button("Send it again", icon=":material/refresh:", key="chat-resend", on_click=turn.send, args=resent)
        st.button("Dismiss", key="chat-dismiss", on_click=turn.dismiss, args=(name,))


def _cited(shown: ShownConversation) -> tuple[Sequence[Mapping[str, Any]], int, int] | None:
    """What an answer cites, its number, and which of that is open."""
    answer, at = _named()
    message = None if answer is None else shown.message(answer)
    if answer is None or message is None or at is None or at >= len(message["citations"]):
        return None
    return message["citations"], answer, at


def _named() -> tuple[int | None, int | None]:
    """The number of an answer, and the place of a citation in it."""
    answer, at = (number(one) for one in (st.query_params.get(SOURCE, "") + ":").split(":")[:2])
    return answer, at
