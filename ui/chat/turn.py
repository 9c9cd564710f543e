"""A question on its way: sent by a thread, so that no click loses it, and its answer, read as the server makes it.

Streamlit ends a run at each click. What was typed is in the session until its answer has come to an end, whatever that
is; the answer is the server's, and each run reads it from its start again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import streamlit as st

from app.client import conversations
from app.client.connection import ServerConnection
from app.client.conversations import FollowedAnswer
from ragcache.errors import HandingOver, RagcacheError
from ui import hearing
from ui.settings import CHOSEN

# Of the session: one question of each kind, by its conversation ("" where that is still to be made). What is settled is
# the conversation whose last answer is known.
TYPED, SENDING, ASKED, FAILED = "question-typed", "question-sending", "question-asked", "question-failed"
SETTLED, COMPARED, COME = "answer-settled", "answer-compared", "answer-come"
PAINT_S = 0.08  # between two paintings of an answer
STOPPED = "The answer was stopped before its first word, so nothing of it is kept."
LOST = "The server ended before it had answered this."


@dataclass(frozen=True)
class SentQuestion:
    """`begun` has the error where the server does not take it. `by` is its own: to leave it takes the question back."""

    conversation_id: str
    question: str
    instead_of: int | None
    compares: bool
    by: ServerConnection | None = None
    begun: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class FailedQuestion:
    """It is shown with what went wrong, and can be sent again."""

    conversation_id: str
    question: str
    instead_of: int | None
    compares: bool
    reason: str


def type_in(conversation_id: str, question: str) -> None:
    """It is sent as soon as that conversation has no other one under way."""
    _of(TYPED)[conversation_id] = question


def typed(conversation_id: str) -> str:
    return str(_of(TYPED).get(conversation_id, ""))


def take_back(conversation_id: str) -> None:
    _of(TYPED).pop(conversation_id, None)


def under_way(conversation_id: str) -> bool:
    """Whether a question of this session has not come to its end yet, as far as it knows."""
    return conversation_id in _of(SENDING) or conversation_id in _of(ASKED)


def send(
    connection: ServerConnection,
    conversation_id: str,
    question: str,
    instead_of: int | None = None,
    newest: int | None = None,
) -> None:
    """`newest`: the last message that was shown; where another tab has added to it, the server refuses. Nothing happens
    while another question is under way: of a double click the second one is none.
    """
    if under_way(conversation_id):
        return
    choices = dict(st.session_state.get(CHOSEN, {}))
    if instead_of is not None:
        choices |= {"instead_of": instead_of} | _up_to(newest)
    sent = SentQuestion(conversation_id, question, instead_of, False, connection.beside())
    _start(sent, conversations.send, conversation_id, question, choices)


def compare(connection: ServerConnection, conversation_id: str, question: str, newest: int | None) -> None:
    """Nothing happens while another question is under way."""
    if under_way(conversation_id):
        return
    choices = {name: value for name, value in st.session_state.get(CHOSEN, {}).items() if name != "linker"}
    choices |= _up_to(newest)
    sent = SentQuestion(conversation_id, question, None, True, connection.beside())
    _start(sent, conversations.compare, conversation_id, choices)


def stop(connection: ServerConnection, conversation_id: str) -> None:
    """Also what still waits for its turn: who goes away leaves the server's queue."""
    sent = sending(conversation_id)
    if sent is not None and sent.by is not None:
        sent.by.leave()
    conversations.stop(connection, conversation_id)


def sending(conversation_id: str) -> SentQuestion | None:
    found = _of(SENDING).get(conversation_id)
    return found if isinstance(found, SentQuestion) else None


def failed(conversation_id: str) -> FailedQuestion | None:
    found = _of(FAILED).get(conversation_id)
    return found if isinstance(found, FailedQuestion) else None


def taken(sent: SentQuestion) -> bool:
    """Whether the server has it. Waits until that is known; what it refuses is kept with the reason."""
    error = hearing.error_of(sent.begun)
    _of(SENDING).pop(sent.conversation_id, None)
    st.session_state.pop(SETTLED, None)
    if isinstance(error, RagcacheError):
        fail(sent, STOPPED if sent.by is not None and sent.by.left else str(error))
        return False
    if error is not None:
        raise error
    _of(ASKED)[sent.conversation_id] = sent
    return True


def settled(conversation_id: str) -> bool:
    """Whether this session has seen how the last answer of it came to its end."""
    return bool(st.session_state.get(SETTLED) == conversation_id)


def settle(conversation_id: str, answer: FollowedAnswer, newest: int | None) -> None:
    """Keep what the server does not: what failed, and what is only compared, to the `newest` message."""
    asked = _of(ASKED).pop(conversation_id, None)
    st.session_state[SETTLED], st.session_state[COME] = conversation_id, None
    if isinstance(asked, SentQuestion) and asked.question != answer.question:
        fail(asked, LOST)
        return
    if asked is not None and answer.message is not None:
        st.session_state[COME] = conversation_id
    place = answer.instead_of if answer.stored is None else answer.stored
    told = SentQuestion(conversation_id, answer.question, place, answer.compares)
    if answer.error:
        if asked is not None or failed(conversation_id) is None:  # else another one would be lost
            fail(told, answer.error)
        return
    if answer.message is not None and _is_of(failed(conversation_id), told):
        dismiss(conversation_id)
    if answer.compares and answer.message is not None:
        st.session_state[COMPARED] = (conversation_id, newest, answer.message)
    elif not answer.compares:
        st.session_state.pop(COMPARED, None)
        if answer.message is None and answer.question:
            fail(told, STOPPED)


def just_come(conversation_id: str) -> bool:
    """Whether its last answer came in this run or the one before; True once."""
    return bool(st.session_state.pop(COME, None) == conversation_id)


def fail(sent: SentQuestion, reason: str) -> None:
    failed = FailedQuestion(sent.conversation_id, sent.question, sent.instead_of, sent.compares, reason)
    _of(FAILED)[sent.conversation_id] = failed


def refuse(conversation_id: str, question: str, reason: str) -> None:
    """One that was not even sent."""
    fail(SentQuestion(conversation_id, question, None, False), reason)


def dismiss(conversation_id: str) -> None:
    _of(FAILED).pop(conversation_id, None)


def followed(connection: ServerConnection, conversation_id: str) -> AbstractContextManager[Iterator[FollowedAnswer]]:
    """The answer that is being made, or was made last, each time that more of it has come."""
    own = connection.beside()
    return hearing.each(map(copy, conversations.follow(own, conversation_id)), own.leave)


def painted(answers: Iterator[FollowedAnswer]) -> Iterator[FollowedAnswer]:
    """Those that are worth painting: the first word at once, then so many a second, and the end."""
    painted_at, had_text = 0.0, False
    for answer in answers:
        now = time.monotonic()
        first = bool(answer.text) and not had_text
        had_text = had_text or first
        if first or answer.ended or not answer.text or now - painted_at >= PAINT_S:
            painted_at = now
            yield answer


def comparison(conversation_id: str, newest: int | None) -> Mapping[str, Any] | None:
    """With this message, and no other that has come since."""
    found = st.session_state.get(COMPARED)
    return found[2] if isinstance(found, tuple) and found[:2] == (conversation_id, newest) else None


def _up_to(newest: int | None) -> dict[str, int]:
    return {} if newest is None else {"newest": newest}


def _of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = st.session_state.setdefault(kind, {})
    return found


def _is_of(failed: FailedQuestion | None, told: SentQuestion) -> bool:
    """Whether what has an answer now had failed before, as where another tab had asked it too."""
    told_so = (told.question, told.instead_of, told.compares)
    return failed is not None and (failed.question, failed.instead_of, failed.compares) == told_so


def _start(sent: SentQuestion, act: Any, *arguments: Any) -> None:
    def run() -> None:
        with HandingOver(sent.begun):
            act(sent.by, *arguments)
            sent.begun.set_result(None)

    dismiss(sent.conversation_id)
    _of(SENDING)[sent.conversation_id] = sent

    Thread(target=run, name="question", daemon=True).start()
