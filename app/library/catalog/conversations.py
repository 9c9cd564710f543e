"""Conversations and their messages."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from app.errors import CatalogError, NotFound
from app.library.catalog.database import DatabasePart
from app.library.catalog.records import Collection, Message, NewMessage, StoredConversation
from app.library.catalog.tables import CONVERSATIONS, MESSAGES, now

_COLUMNS = [CONVERSATIONS.c[name] for name in StoredConversation.__dataclass_fields__]
_MESSAGE = [MESSAGES.c[name] for name in Message.__dataclass_fields__]


class Conversations(DatabasePart):
    """Each belongs to a collection, and goes with it."""

    def create(self, collection: Collection, title: str = "") -> StoredConversation:
        started = now()
        conversation = StoredConversation(uuid.uuid4().hex, collection.id, title, started, started)
        with self._database.writing() as connection:
            connection.execute(insert(CONVERSATIONS), vars(conversation))
        return conversation

    def get(self, conversation_id: str) -> StoredConversation:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(CONVERSATIONS.c.id == conversation_id)).one_or_none()
        if row is None:
            raise _missing(conversation_id)
        return StoredConversation(**row._mapping)

    def all(self, collection: Collection | None = None) -> list[StoredConversation]:
        """The one that was last used comes first."""
        query = select(*_COLUMNS).order_by(CONVERSATIONS.c.updated.desc(), CONVERSATIONS.c.id)
        if collection is not None:
            query = query.where(CONVERSATIONS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            return [StoredConversation(**row._mapping) for row in connection.execute(query)]

    def rename(self, conversation_id: str, title: str) -> None:
        with self._database.writing() as connection:
            _change(connection, conversation_id, {"title": title})

    def delete(self, conversation_id: str) -> None:
        with self._database.writing() as connection:
            if not connection.execute(delete(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id)).rowcount:
                raise _missing(conversation_id)

    def add(self, conversation_id: str, messages: Sequence[NewMessage]) -> list[Message]:
        """Append messages, all or none: a question is not kept without its answer unless it is given alone."""
        moment = now()
        with self._database.writing() as connection:
            _change(connection, conversation_id, {"updated": moment})
            written = []
            for message in messages:
                values = {**vars(message), "conversation_id": conversation_id, "created": moment}
                new = connection.execute(insert(MESSAGES).values(**values).returning(MESSAGES.c.id))
                written.append(Message(id=new.scalar_one(), **values))
        return written

    def messages(self, conversation_id: str) -> list[Message]:
        """In their order."""
        query = select(*_MESSAGE).where(MESSAGES.c.conversation_id == conversation_id).order_by(MESSAGES.c.id)
        with self._database.reading() as connection:
            known = select(CONVERSATIONS.c.id).where(CONVERSATIONS.c.id == conversation_id)
            if connection.scalar(known) is None:
                raise _missing(conversation_id)
            rows = connection.execute(query).mappings()
            return [Message(**(dict(row) | {"citations": tuple(row["citations"])})) for row in rows]


def _change(connection: Connection, conversation_id: str, values: Mapping[str, Any]) -> None:
    change = update(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id).values(**values)
    if not connection.execute(change).rowcount:
        raise _missing(conversation_id)


def _missing(conversation_id: str) -> CatalogError:
    return NotFound(f"no conversation {conversation_id!r}: it never was, or somebody has deleted it")
