"""A conversation that a server keeps: its answers go on there whoever goes away, and any client may go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from app.client import conversations
from app.client.answers import ServedStream
from app.client.connection import COLLECTIONS, CONVERSATIONS, ServerConnection, ServerError


class ServedConversation:
    """What `app.answering.conversation.Conversation` is on this machine, as far as a chat needs it."""

    def __init__(
        self,
        connection: ServerConnection,
        collection: str,
        choices: Mapping[str, Any],
        conversation_id: str | None = None,
    ):
        """Raises ServerError where there is no such collection, or conversation."""
        self.id = conversation_id  # None until something is asked
        self.collection = collection
        self.unsaved: list[object] = []  # the server stores
        self._connection, self._choices = connection, choices
        if conversation_id is None:
            connection.ask("GET", *COLLECTIONS, collection)
        else:
            self.collection = self._told(conversations.card(connection, conversation_id), "collection")

    def stream(self, question: str) -> ServedStream:
        if self.id is None:
            self.id = self._told(conversations.create(self._connection, self.collection), "id")
        body = {"question": question, **self._choices}
        path = (*CONVERSATIONS, self.id, "messages")
        return ServedStream(self._connection, question, "POST", *path, body=body, stop=self._stop)

    def save(self) -> None:
        """It is stored."""

    def _stop(self) -> None:
        assert self.id is not None
        with suppress(ServerError):  # what cannot be told a server that is gone ends there too
            conversations.stop(self._connection, self.id)

    def _told(self, card: Any, name: str) -> str:
        with self._connection.understood():
            return str(card[name])
