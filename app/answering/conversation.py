"""Several questions after each other, stored with their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from app.answering import Answer, Asked
from app.answering.answerer import STOPPED
from app.answering.question_options import AskedInConversation, taking
from app.answering.standing import DocumentPlace
from app.answering.stream import BROKEN, AnswerStream, AsyncAnswerStream
from app.errors import CatalogError, NotFound
from app.library.catalog import Catalog
from app.library.catalog.records import Message, NewMessage

if TYPE_CHECKING:
    from app.prompt import Turn

LONGEST_TITLE = 80
LEFT = "it is not stored, and what it was to take the place of is still there"
NOTHING_ASKED = "nothing has been asked here yet"
Said = Message | NewMessage
RECENT = 200  # messages that a question reads: what was said before these is seldom still meant
Start = Callable[[str, Asked, Sequence[DocumentPlace]], AnswerStream]  # a pipeline's


class Conversation:
    """The catalog holds it: any program may go on with it by its id, and each question sees what is stored then.

    A question is stored together with its answer, when that ends. An answer that was stopped is stored as far as it
    came, and not at all if that is nowhere; where a fault broke it off, it takes no other's place. What cannot be
    stored is kept here; its answer says so, and each later question tries again, as `save` does.
    """

    def __init__(
        self,
        start: Start,
        catalog: Catalog,
        collection: str,
        conversation_id: str | None = None,
        newest: int | None = None,
    ):
        """`start` answers its questions. `newest`: the last message that whoever asks has seen. Where there is another
        one behind it, nothing is stored and nothing answered again.
        """
        self.collection = collection
        self.id = conversation_id  # None until something is stored
        self.unsaved: list[Answer] = []
        self.saved: list[Message] = []  # by the last `save` that stored any
        self._instead_of: int | None = None
        self._newest = newest
        self._start, self._catalog = start, catalog
        self._conversations = catalog.conversations

    @classmethod
    def stored(cls, start: Start, catalog: Catalog, conversation_id: str) -> Conversation:
        """Raises CatalogError when there is none with this id."""
        found = catalog.conversations.get(conversation_id)
        if (collection := catalog.collections.with_id(found.collection_id)) is None:
            raise CatalogError(f"the collection of conversation {conversation_id!r} has just been deleted")
        return cls(start, catalog, collection.name, conversation_id)

    @property
    def messages(self) -> list[Message]:
        return [] if self.id is None else self._conversations.messages(self.id)

    @taking(AskedInConversation)
    def ask(self, question: str, **options: Any) -> Answer:
        return self.stream(question, **options).answer

    @taking(AskedInConversation)
    def stream(self, question: str, **options: Any) -> AnswerStream:
        """Options of a pipeline but `history` and `collection`, which are the conversation's own, and `instead_of`."""
        own = {"history", "collection"} & set(options)
        if own:
            raise TypeError(f"a conversation has its own {' and '.join(sorted(own))}")
        given = AskedInConversation(**options)
        instead_of = given.instead_of
        with suppress(CatalogError):  # else it is as unsaved as it was
            self.save()
        if instead_of is not None:
            self.place_of(instead_of)
        messages = self._said(RECENT, before=instead_of)
        asked = replace(given, history=turns(messages), collection=self.collection)
        stream = self._start(question.strip(), asked, _last_places(messages))
        stream.then.append(partial(self._store, instead_of))
        return stream

    def again(self, **options: Any) -> AnswerStream:
        """The last question, answered once more behind what stood before it, to compare: nothing is stored."""
        messages = self._said(RECENT + 2)  # with itself and its answer behind what it has read itself
        self.check_newest()
        asked = [place for place, message in enumerate(messages) if message.role == "user"]
        if not asked:
            raise NotFound(NOTHING_ASKED)
        before = messages[: asked[-1]]
        told = replace(Asked(**options), history=turns(before), collection=self.collection)
        return self._start(messages[asked[-1]].content, told, _last_places(before))

    def check_newest(self) -> None:
        """Raises Conflict where somebody has said more than whoever asks has seen."""
        if self.id is not None:
            self._conversations.check_newest(self.id, self._newest)

    def place_of(self, message_id: int) -> int:
        """Among the messages. Raises NotFound where it is no question of this conversation."""
        for place, message in enumerate(self.messages):
            if message.id == message_id and message.role == "user":
                return place
        raise NotFound(f"no question {message_id} in this conversation: it never was, or another took its place")

    @taking(AskedInConversation)
    async def aask(self, question: str, **options: Any) -> Answer:
        return await (await self.astream(question, **options)).answer()

    @taking(AskedInConversation)
    async def astream(self, question: str, **options: Any) -> AsyncAnswerStream:
        return await AsyncAnswerStream.of(self.stream, question, **options)

    def save(self) -> None:
        """Store what could not be stored before. Raises CatalogError when it still cannot; nothing is lost then."""
        if not self.unsaved:
            return
        title = title_of(self.unsaved[0].question)
        if self.id is None:
            collection = self._catalog.collections.get(self.collection)
            self.id = self._conversations.create(collection, title).id
        messages, instead_of, newest = _messages(self.unsaved), self._instead_of, self._newest
        self.saved = self._conversations.add(self.id, messages, title=title, instead_of=instead_of, newest=newest)
        self._instead_of = None
        if self._newest is not None:
            self._newest = self.saved[-1].id
        self.unsaved.clear()

    def _said(self, most: int, before: int | None = None) -> list[NewMessage]:
        """The last of them; `before` this message, where one is given, which what is not stored yet stands behind."""
        upto = self._instead_of if before is None else before
        stored = [] if self.id is None else self._conversations.last_said(self.id, most, upto)
        return [*stored, *(_messages(self.unsaved) if before is None else ())]

    def _store(self, instead_of: int | None, answer: Answer) -> Answer:
        if instead_of is not None and BROKEN in answer.notes:
            return replace(answer, notes=(*answer.notes, LEFT))
        if not answer.text and STOPPED in answer.notes:  # before its first word
            return answer
        if instead_of is not None:  # what could not be stored stands behind it
            self.unsaved.clear()
            self._instead_of = instead_of if self._instead_of is None else min(instead_of, self._instead_of)
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
        lists = {name: tuple(told[name]) for name in ("citations", "support", "notes")}
        said = NewMessage("assistant", answer.text, report=told["report"], **lists)
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


def _last_places(messages: Sequence[Said]) -> list[DocumentPlace]:
    """Of the last answer's citations, which are numbered in the order of its prompt."""
    cited = next((message.citations for message in reversed(messages) if message.role == "assistant"), ())
    return [(citation["document_id"], citation["start"]) for citation in cited]


def title_of(question: str) -> str:
    line = " ".join(question.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"
