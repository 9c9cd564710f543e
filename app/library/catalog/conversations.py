"""Conversations and their messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, or_, select, true, update

from app.errors import Conflict, NotFound
from app.library.catalog.database import DatabasePart
from app.library.catalog.records import Collection, Message, NewMessage, StoredConversation
from app.library.catalog.tables import CONVERSATIONS, MESSAGES, now
from app.library.catalog.text_search import says

CITED = 2  # answers whose citations are read for a question
UNSEEN = "this conversation has gone on elsewhere meanwhile: look at what is new in it, and ask again"
FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)
_COLUMNS = [CONVERSATIONS.c[name] for name in StoredConversation.__dataclass_fields__]
_MESSAGE = [MESSAGES.c[name] for name in Message.__dataclass_fields__]


class Conversations(DatabasePart):
    """Each belongs to a collection, and goes with it. One of another owner is not there; without `owner` all are."""

    def create(self, collection: Collection, title: str = "", owner: str = "") -> StoredConversation:
        started = now()
        conversation = StoredConversation(uuid.uuid4().hex, collection.id, title, started, started, owner)
        with self._database.writing() as connection:
            connection.execute(insert(CONVERSATIONS), vars(conversation))
        return conversation

    def get(self, conversation_id: str, owner: str | None = None) -> StoredConversation:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(_one(conversation_id, owner))).one_or_none()
        if row is None:
            raise missing(conversation_id)
        return StoredConversation(**row._mapping)

    def all(self, collection: Collection | None = None, owner: str | None = None) -> list[StoredConversation]:
        """The one that was last used comes first."""
        query = select(*_COLUMNS).order_by(CONVERSATIONS.c.updated.desc(), CONVERSATIONS.c.id).where(_of(owner))
        if collection is not None:
            query = query.where(CONVERSATIONS.c.collection_id == collection.id)
        with self._database.reading() as connection:
            return [StoredConversation(**row._mapping) for row in connection.execute(query)]

    def page(
        self, owner: str, limit: int, *, after: str = "", collections: Iterable[int] | None = None, words: str = ""
    ) -> list[StoredConversation]:
        """The first ones of `all`, in these collections, behind `after`, with these words in the title or a message.
        Raises NotFound where that is none of them.
        """
        own = _of(owner)
        if collections is not None:
            own &= CONVERSATIONS.c.collection_id.in_(sorted(collections))
        if words:
            own &= _saying(words)
        query = select(*_COLUMNS).order_by(CONVERSATIONS.c.updated.desc(), CONVERSATIONS.c.id).where(own).limit(limit)
        with self._database.reading() as connection:
            if after:
                used = connection.scalar(select(CONVERSATIONS.c.updated).where(own, CONVERSATIONS.c.id == after))
                if used is None:
                    raise missing(after)
                same = (CONVERSATIONS.c.updated == used) & (CONVERSATIONS.c.id > after)
                query = query.where((CONVERSATIONS.c.updated < used) | same)
            return [StoredConversation(**row._mapping) for row in connection.execute(query)]

    def count(self, owner: str) -> int:
        with self._database.reading() as connection:
            counted = select(func.count()).select_from(CONVERSATIONS).where(_of(owner))
            return int(connection.scalar(counted) or 0)

    def rename(self, conversation_id: str, title: str, owner: str | None = None) -> None:
        with self._database.writing() as connection:
            _change(connection, conversation_id, owner, {"title": title})

    def delete(self, conversation_id: str, owner: str | None = None) -> None:
        with self._database.writing() as connection:
            if not connection.execute(delete(CONVERSATIONS).where(_one(conversation_id, owner))).rowcount:
                raise missing(conversation_id)

    def add(
        self,
        conversation_id: str,
        messages: Sequence[NewMessage],
        owner: str | None = None,
        title: str = "",
        instead_of: int | None = None,
        newest: int | None = None,
    ) -> list[Message]:
        """Append messages, all or none: a question is not kept without its answer unless it is given alone. `title`:
        of the conversation, where it has none. They take the place of the message `instead_of` and of all behind it.
        Raises Conflict where there is one behind `newest`.
        """
        moment = now()
        with self._database.writing() as connection:
            _change(connection, conversation_id, owner, {"updated": moment})  # first: others wait for this row
            _check_newest(connection, conversation_id, newest)
            if title:
                untitled = update(CONVERSATIONS).where(_one(conversation_id, owner), CONVERSATIONS.c.title == "")
                connection.execute(untitled.values(title=title))
            if instead_of is not None:
                behind = (MESSAGES.c.conversation_id == conversation_id) & (MESSAGES.c.id >= instead_of)
                connection.execute(delete(MESSAGES).where(behind))
            written = []
            for message in messages:
                values = {**vars(message), "conversation_id": conversation_id, "created": moment}
                new = connection.execute(insert(MESSAGES).values(**values).returning(MESSAGES.c.id))
                written.append(Message(id=new.scalar_one(), **values))
        return written

    def check_newest(self, conversation_id: str, newest: int | None) -> None:
        """Raises Conflict where there is a message behind that one."""
        with self._database.reading() as connection:
            _check_newest(connection, conversation_id, newest)

    def count_messages(self, conversation_id: str, before: int | None = None) -> int:
        """Those before that one, or all."""
        own = MESSAGES.c.conversation_id == conversation_id
        if before is not None:
            own &= MESSAGES.c.id < before
        with self._database.reading() as connection:
            counted = select(func.count()).select_from(MESSAGES).where(own)
            return int(connection.scalar(counted) or 0)

    def last_said(self, conversation_id: str, most: int, before: int | None = None) -> list[NewMessage]:
        """The last messages in their order, by what the next question needs of them: words, and what the last answer
        cites; and the one before it, which the last question itself stands behind. `before`: as if nothing from this
        message on were there.
        """
        own = MESSAGES.c.conversation_id == conversation_id
        if before is not None:
            own &= MESSAGES.c.id < before
        words = select(MESSAGES.c.role, MESSAGES.c.content).where(own).order_by(MESSAGES.c.id.desc()).limit(most)
        of_answers = own & (MESSAGES.c.role == "assistant")
        cited = select(MESSAGES.c.citations).where(of_answers).order_by(MESSAGES.c.id.desc()).limit(CITED)
        with self._database.reading() as connection:
            if connection.scalar(select(CONVERSATIONS.c.id).where(_one(conversation_id, None))) is None:
                raise missing(conversation_id)
            said = [NewMessage(role, content) for role, content in connection.execute(words)][::-1]
            citations = [tuple(one) for one in connection.scalars(cited)]
        answers = [place for place, one in enumerate(said) if one.role == "assistant"]
        for place, one in zip(reversed(answers), citations, strict=False):
            said[place] = replace(said[place], citations=one)
        return said

    def messages(self, conversation_id: str, owner: str | None = None, last: int | None = None) -> list[Message]:
        """In their order: all, or the last so many."""
        query = select(*_MESSAGE).where(MESSAGES.c.conversation_id == conversation_id)
        query = query.order_by(MESSAGES.c.id.desc()).limit(last)
        with self._database.reading() as connection:
            if connection.scalar(select(CONVERSATIONS.c.id).where(_one(conversation_id, owner))) is None:
                raise missing(conversation_id)
            rows = connection.execute(query).mappings()
            return [_message(dict(row)) for row in rows][::-1]


def _message(row: dict[str, Any]) -> Message:
    support = row["support"]
    lists = {"citations": tuple(row["citations"]), "support": None if support is None else tuple(support)}
    return Message(**(row | lists | {"notes": tuple(row["notes"] or ())}))


def _of(owner: str | None) -> ColumnElement[bool]:
    return true() if owner is None else CONVERSATIONS.c.owner == owner


def _saying(words: str) -> ColumnElement[bool]:
    """A database folds the case of ASCII at least; other letters are looked for as they are written most. It looks for
    them as they stand: by a pattern it would try each of its signs at each place.
    """
    written = dict.fromkeys(one.translate(FOLDED) for one in (words, words.lower(), words.upper(), words.capitalize()))
    titles = [says(CONVERSATIONS.c.title, one) for one in written]
    contents = [says(MESSAGES.c.content, one) for one in written]
    said = exists().where(MESSAGES.c.conversation_id == CONVERSATIONS.c.id, or_(*contents))
    return or_(*titles, said)


def _one(conversation_id: str, owner: str | None) -> ColumnElement[bool]:
    return (CONVERSATIONS.c.id == conversation_id) & _of(owner)


def _change(connection: Connection, conversation_id: str, owner: str | None, values: Mapping[str, Any]) -> None:
    if not connection.execute(update(CONVERSATIONS).where(_one(conversation_id, owner)).values(**values)).rowcount:
        raise missing(conversation_id)


def _check_newest(connection: Connection, conversation_id: str, newest: int | None) -> None:
    if newest is None:
        return
    behind = exists().where(MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.id > newest)
    if connection.scalar(select(behind)):
        raise Conflict(UNSEEN)


def missing(conversation_id: str) -> NotFound:
    return NotFound(f"no conversation {conversation_id!r}: it never was, or somebody has deleted it")
