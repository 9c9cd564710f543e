"""Several questions after each other, stored with their answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from app.answering.answerer import STOPPED
from app.answering.records import Answer, Asked, AskOptions
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.errors import CatalogError
from app.library.catalog.records import Message, NewMessage

if TYPE_CHECKING:
    from app.answering.pipeline import RagPipeline
    from app.prompt import Turn

LONGEST_TITLE = 80
Said = Message | NewMessage


class Conversation:
    """The catalog holds it: any program may go on with it by its id, and each question sees what is stored then.

    A question is stored together with its answer, when that ends. An answer that was stopped is stored as far as it
    came, and not at all if that is nowhere. What cannot be stored is kept here; its answer says so, and each later
    question tries again, as `save` does.
    """

    def __init__(self, pipeline: RagPipeline, collection: str, conversation_id: str | None = None):
        self.collection = collection
        self.id = conversation_id  # None until something is stored
        self.unsaved: list[Answer] = []
        self._pipeline = pipeline
        self._conversations = pipeline.library.catalog.conversations

    @classmethod
    def stored(cls, pipeline: RagPipeline, conversation_id: str) -> Conversation:
        """Raises CatalogError when there is none with this id."""
        catalog = pipeline.library.catalog
        found = catalog.conversations.get(conversation_id)
        names = [one.name for one in catalog.collections.all() if one.id == found.collection_id]
        if not names:
            raise CatalogError(f"the collection of conversation {conversation_id!r} has just been deleted")
        return cls(pipeline, names[0], conversation_id)

    @property
    def messages(self) -> list[Message]:
        return [] if self.id is None else self._conversations.messages(self.id)

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        return self.stream(question, **options).answer

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """Options of a pipeline but `history` and `collection`, which are the conversation's own."""
        own = {"history", "collection"} & set(options)
        if own:
            raise TypeError(f"a conversation has its own {' and '.join(sorted(own))}")
        with suppress(CatalogError):  # else it is as unsaved as it was
            self.save()
        messages: list[Said] = [*self.messages, *_messages(self.unsaved)]
        asked = replace(Asked(**options), history=turns(messages), collection=self.collection)
        stream = self._pipeline.start(question.strip(), asked, _last_documents(messages))
        stream.then.append(self._store)
        return stream

    async def aask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        return await (await self.astream(question, **options)).answer()

    async def astream(self, question: str, **options: Unpack[AskOptions]) -> AsyncAnswerStream:
        return await AsyncAnswerStream.of(self.stream, question, **options)

    def save(self) -> None:
        """Store what could not be stored before. Raises CatalogError when it still cannot; nothing is lost then."""
        if not self.unsaved:
            return
        if self.id is None:
            collection = self._pipeline.library.catalog.collections.get(self.collection)
            self.id = self._conversations.create(collection, _title(self.unsaved[0].question)).id
        self._conversations.add(self.id, _messages(self.unsaved))
        self.unsaved.clear()

    def _store(self, answer: Answer) -> Answer:
        if not answer.text and STOPPED in answer.notes:  # before its first word
            return answer
        self.unsaved.append(answer)
        try:
            self.save()
        except CatalogError as error:
            return replace(answer, notes=(*answer.notes, f"not stored yet: {error}"))
        return answer


def _messages(answers: Sequence[Answer]) -> list[NewMessage]:
    """Questions and answers in turn."""
    messages = []
    for answer in answers:
        told = answer.to_dict()
        said = NewMessage("assistant", answer.text, tuple(told["citations"]), told["report"])
        messages += [NewMessage("user", answer.question), said]
    return messages


def turns(messages: Sequence[Said]) -> list[Turn]:
    """Questions with their answers, oldest first; what has no counterpart is left out."""
    found: list[Turn] = []
    question: str | None = None
    for message in messages:
        if message.role == "user":
            question = message.content
        elif message.role == "assistant" and question is not None and message.content.strip():
            found.append((question, message.content))
            question = None
    return found


def _last_documents(messages: Sequence[Said]) -> list[int | str]:
    """Of the last answer's citations, which are numbered in the order of its prompt."""
    cited = next((message.citations for message in reversed(messages) if message.role == "assistant"), ())
    return list(dict.fromkeys(citation["document_id"] for citation in cited))


def _title(question: str) -> str:
    line = " ".join(question.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"
