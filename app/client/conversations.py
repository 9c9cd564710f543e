"""A server's conversations: their list, what was said, and answers that are followed while they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.client.connection import CONVERSATIONS, Record, ServerConnection

PAGE = 50


@dataclass
class FollowedAnswer:
    """An answer as far as it has come. `message` is None until its end, and where it was stopped before its first word;
    `error` says what broke it, and `stored` is the id of its question where what came is stored all the same.
    """

    question: str = ""
    compares: bool = False  # with the one before, and is not stored
    instead_of: int | None = None
    citations: list[Record] = field(default_factory=list)
    text: str = ""
    message: Record | None = None
    notes: list[str] = field(default_factory=list)
    error: str = ""
    stored: int | None = None
    ended: bool = False


def create(connection: ServerConnection, collection: str) -> Record:
    return connection.record(connection.ask("POST", *CONVERSATIONS, body={"collection": collection}))


def page(connection: ServerConnection, words: str = "", after: str = "") -> tuple[list[Record], bool]:
    """The one that was last used comes first; and whether there are more."""
    query = {"limit": PAGE} | ({"q": words} if words else {}) | ({"after": after} if after else {})
    told = connection.ask("GET", *CONVERSATIONS, query=query)
    return connection.records(told), told.get("has_more") is True


def card(connection: ServerConnection, conversation_id: str) -> Record:
    return connection.record(connection.ask("GET", *CONVERSATIONS, conversation_id))


def messages(connection: ServerConnection, conversation_id: str, last: int | None = None) -> tuple[list[Record], int]:
    """All, or the last so many; and how many stand before them. A server of before tells all."""
    query = None if last is None else {"last": last}
    told = connection.ask("GET", *CONVERSATIONS, conversation_id, "messages", query=query)
    messages = connection.records(told)
    earlier = told.get("earlier", 0)
    if not isinstance(earlier, int):
        raise connection.unknown()
    return messages, earlier


def rename(connection: ServerConnection, conversation_id: str, title: str) -> None:
    connection.ask("PATCH", *CONVERSATIONS, conversation_id, body={"title": title})


def delete(connection: ServerConnection, conversation_id: str) -> None:
    connection.ask("DELETE", *CONVERSATIONS, conversation_id)


def export(connection: ServerConnection, conversation_id: str, form: str) -> bytes:
    """`form`: markdown or json."""
    kind = "text/markdown" if form == "markdown" else "application/json"
    return connection.data("GET", *CONVERSATIONS, conversation_id, "export", query={"format": form}, kind=kind)


def send(connection: ServerConnection, conversation_id: str, question: str, choices: Mapping[str, Any]) -> None:
    """Have it answered; whoever wants to read the answer follows it. Returns when the server has begun."""
    _begin(connection, conversation_id, "messages", {"question": question, **choices})


def compare(connection: ServerConnection, conversation_id: str, choices: Mapping[str, Any]) -> None:
    """Have the last question answered again, without any cache. Returns when the server has begun."""
    _begin(connection, conversation_id, "again", choices)


def stop(connection: ServerConnection, conversation_id: str) -> None:
    connection.ask("POST", *CONVERSATIONS, conversation_id, "stop")


def follow(connection: ServerConnection, conversation_id: str) -> Iterator[FollowedAnswer]:
    """The answer that is being made, or was made last, each time that more of it has come; from its start again."""
    answer = FollowedAnswer()
    with connection.events("GET", *CONVERSATIONS, conversation_id, "answer") as events:
        for event in events:
            with connection.understood():
                take(answer, event.name, event.data)
            yield answer
    if not answer.ended:
        raise connection.unfinished()


def _begin(connection: ServerConnection, conversation_id: str, route: str, body: Mapping[str, Any]) -> None:
    with connection.events("POST", *CONVERSATIONS, conversation_id, route, body={**body, "stream": True}):
        """The response's head comes when the answer has its turn; who leaves then ends nothing."""


def take(answer: FollowedAnswer, name: str, data: Mapping[str, Any]) -> None:
    """One more event of it."""
    if name == "start":
        answer.question, answer.compares = str(data["question"]), data["compares"] is True
        answer.instead_of = data["instead_of"]
        answer.citations = [dict(one) for one in data["citations"]]
    elif name == "piece":
        answer.text += str(data["text"])
    elif name == "done":
        answer.ended, answer.message = True, data["answer"]
        if not answer.question and data["question"] is not None:  # of an answer that was made long ago
            answer.question = str(data["question"]["content"])
        answer.notes = [str(one) for one in data["notes"]]
    elif name == "error":
        answer.ended, answer.error = True, str(data["error"]["message"])
        if stored := data.get("stored"):
            answer.stored = stored["question"]
