"""A question on its way: sent by a thread, so that no click loses it, and its answer, read as the server makes it.

Streamlit ends a run at each click. What was typed is in the session until the server has it; the answer is the
server's, and each run reads it from its start again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

import streamlit as st

from app.client import conversations
from app.client.connection import ServerConnection
from app.client.conversations import FollowedAnswer
from ragcache.errors import RagcacheError
from ui.settings import CHOSEN

SENDING, FAILED, COMPARED = "question-sending", "question-failed", "answer-compared"  # of the session
PAINT_S = 0.08  # between two paintings of an answer


@dataclass(frozen=True)
class SentQuestion:
    """`begun` has the error where the server does not take it."""

    conversation_id: str
    question: str
    instead_of: int | None
    compares: bool
    begun: Future[None]


@dataclass(frozen=True)
class FailedQuestion:
    """It is shown with what went wrong, and can be sent again."""

    conversation_id: str
    question: str
    instead_of: int | None
    reason: str


def send(connection: ServerConnection, conversation_id: str, question: str, instead_of: int | None = None) -> None:
    choices = dict(st.session_state.get(CHOSEN, {}))
    if instead_of is not None:
        choices["instead_of"] = instead_of
    begun: Future[None] = Future()
    st.session_state.pop(FAILED, None)
    st.session_state[SENDING] = SentQuestion(conversation_id, question, instead_of, False, begun)
    _start(begun, conversations.send, connection, conversation_id, question, choices)


def compare(connection: ServerConnection, conversation_id: str, question: str) -> None:
    choices = {name: value for name, value in st.session_state.get(CHOSEN, {}).items() if name != "linker"}
    begun: Future[None] = Future()
    st.session_state[SENDING] = SentQuestion(conversation_id, question, None, True, begun)
    _start(begun, conversations.compare, connection, conversation_id, choices)


def sending(conversation_id: str) -> SentQuestion | None:
    found = st.session_state.get(SENDING)
    return found if isinstance(found, SentQuestion) and found.conversation_id == conversation_id else None


def failed(conversation_id: str) -> FailedQuestion | None:
    found = st.session_state.get(FAILED)
    return found if isinstance(found, FailedQuestion) and found.conversation_id == conversation_id else None


def taken(sent: SentQuestion) -> bool:
    """Whether the server has it. Waits until that is known; what it refuses is kept with the reason."""
    error = sent.begun.exception()
    st.session_state.pop(SENDING, None)
    if isinstance(error, RagcacheError):
        fail(sent.conversation_id, sent.question, sent.instead_of, str(error))
        return False
    if error is not None:
        raise error
    return True


def fail(conversation_id: str, question: str, instead_of: int | None, reason: str) -> None:
    st.session_state[FAILED] = FailedQuestion(conversation_id, question, instead_of, reason)


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


def keep_comparison(conversation_id: str, message: Mapping[str, Any]) -> None:
    st.session_state[COMPARED] = (conversation_id, message)


def comparison(conversation_id: str) -> Mapping[str, Any] | None:
    found = st.session_state.get(COMPARED)
    return found[1] if isinstance(found, tuple) and found[0] == conversation_id else None


def forget_comparison() -> None:
    st.session_state.pop(COMPARED, None)


def _start(begun: Future[None], act: Any, *arguments: Any) -> None:
    def run() -> None:
        try:
            act(*arguments)
        except RagcacheError as error:
            begun.set_exception(error)
        else:
            begun.set_result(None)

    Thread(target=run, name="question", daemon=True).start()
