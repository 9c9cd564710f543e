"""Conversations over a collection's documents: what was asked and answered, to look at, name, keep and delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.answering import SupportedSentence
from app.answering.transcript import markdown_of
from app.library.catalog.conversations import missing
from app.library.catalog.records import Collection, Message, StoredConversation
from app.server.bodies import RequestBody
from app.server.callers import Asking, Caller
from app.server.events import sound
from app.server.problems import RefusedRequest
from app.server.redaction import redacted_notes, redacted_report
from app.server.service import Service, Serving

router = APIRouter(prefix="/v1/conversations", tags=["conversations"])
LONGEST_TITLE = 200
MOST = 10_000  # of one key
Title = Annotated[str, Field(max_length=LONGEST_TITLE)]


class NewConversation(RequestBody):
    model_config = ConfigDict(extra="forbid")
    collection: Annotated[str, Field(max_length=1000)] | None = None
    title: Title = ""  # its first question, where it is empty


class Renaming(RequestBody):
    model_config = ConfigDict(extra="forbid")
    title: Title


class ConversationCard(BaseModel):
    id: str
    object: Literal["conversation"] = "conversation"
    collection: str
    title: str
    created: int
    updated: int
    answering: bool  # whether an answer is being made


class ConversationList(BaseModel):
    """The one that was last used comes first."""

    object: Literal["list"] = "list"
    data: list[ConversationCard]
    has_more: bool


class MessageCard(BaseModel):
    """`id` is None of what is not stored; `support` of questions, and of old answers. `notes` say what a reader of an
    answer should know of it.
    """

    id: int | None
    role: Literal["user", "assistant", "system"]
    content: str
    citations: list[dict[str, Any]]
    report: dict[str, Any] | None
    support: list[SupportedSentence] | None = None
    notes: list[str] = []
    created: int | None


class MessageList(BaseModel):
    """`earlier`: how many stand before these."""

    object: Literal["list"] = "list"
    data: list[MessageCard]
    earlier: int


class Deleted(BaseModel):
    id: str
    deleted: Literal[True] = True


class Exported(BaseModel):
    conversation: ConversationCard
    messages: list[MessageCard]


@router.post("", status_code=201)
def create(body: NewConversation, service: Serving, caller: Asking) -> ConversationCard:
    caller.check("read")
    collection = caller.collection(service.catalog, body.collection or service.settings.collection)
    if service.catalog.conversations.count(caller.id) >= MOST:
        raise RefusedRequest(403, f"there are {MOST:,} conversations: delete some", code="limit")
    stored = service.catalog.conversations.create(collection, body.title, caller.id)
    return card_of(service, stored, collection)


@router.get("")
def conversations(
    service: Serving,
    caller: Asking,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[str, Query(max_length=64)] = "",
    q: Annotated[str, Query(max_length=LONGEST_TITLE)] = "",
) -> ConversationList:
    """`after`: the last id of the page before. `q`: words in the title, a question or an answer."""
    caller.check("read")
    words = q.replace("\0", "").strip()
    stored = service.catalog.conversations
    page = stored.page(caller.id, limit + 1, after=after, collections=caller.collections, words=words)
    seen = {one.id: one for one in service.catalog.collections.all()}  # behind them: some may have gone meanwhile
    cards = [card_of(service, one, seen[one.collection_id]) for one in page[:limit] if one.collection_id in seen]
    return ConversationList(data=cards, has_more=len(page) > limit)


@router.get("/{conversation_id}")
def conversation(conversation_id: str, service: Serving, caller: Asking) -> ConversationCard:
    return card_of(service, *found(conversation_id, service, caller))


@router.patch("/{conversation_id}")
def rename(conversation_id: str, body: Renaming, service: Serving, caller: Asking) -> ConversationCard:
    found(conversation_id, service, caller)
    service.catalog.conversations.rename(conversation_id, body.title, caller.id)
    return card_of(service, *found(conversation_id, service, caller))


@router.delete("/{conversation_id}")
def delete(conversation_id: str, service: Serving, caller: Asking) -> Deleted:
    """An answer that is being made is stopped."""
    found(conversation_id, service, caller)
    service.catalog.conversations.delete(conversation_id, caller.id)
    service.generations.drop(conversation_id)  # behind it: whoever asks meanwhile stores nothing any more
    return Deleted(id=conversation_id)


@router.get("/{conversation_id}/messages")
def messages(
    conversation_id: str,
    service: Serving,
    caller: Asking,
    last: Annotated[int | None, Query(ge=1, le=MOST)] = None,
) -> MessageList:
    """All of them, or the `last` so many."""
    found(conversation_id, service, caller)
    told, count = cards_of(conversation_id, service, caller, last), service.catalog.conversations.count_messages
    earlier = 0 if last is None or len(told) < last else count(conversation_id, before=told[0].id)
    return MessageList(data=told, earlier=earlier)


@router.get("/{conversation_id}/export", response_model=Exported, responses={200: {"content": {"text/markdown": {}}}})
def export(
    conversation_id: str, service: Serving, caller: Asking, format: Literal["json", "markdown"] = "json"
) -> Response:
    stored, collection = found(conversation_id, service, caller)
    name = f"conversation-{stored.id}.{'md' if format == 'markdown' else 'json'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if format == "markdown":
        said = service.catalog.conversations.messages(stored.id, caller.id)
        said = [replace(one, notes=tuple(redacted_notes(one.notes))) for one in said]
        told = markdown_of(stored, collection.name, said)
        return Response(told, media_type="text/markdown", headers=headers)
    exported = Exported(
        conversation=card_of(service, stored, collection), messages=cards_of(conversation_id, service, caller)
    )
    return JSONResponse(exported.model_dump(), headers=headers)


def found(conversation_id: str, service: Service, caller: Caller) -> tuple[StoredConversation, Collection]:
    """Of the caller's own, in a collection that he still may see. Raises NotFound for all others."""
    caller.check("read")
    stored = service.catalog.conversations.get(conversation_id, caller.id)
    collection = service.catalog.collections.with_id(stored.collection_id)
    if collection is None or not caller.may_see(collection):
        raise missing(conversation_id)
    return stored, collection


def card_of(service: Service, stored: StoredConversation, collection: Collection) -> ConversationCard:
    return ConversationCard(
        id=stored.id,
        collection=sound(collection.name),
        title=sound(stored.title),
        created=int(stored.created.timestamp()),
        updated=int(stored.updated.timestamp()),
        answering=service.generations.running(stored.id),
    )


def cards_of(conversation_id: str, service: Service, caller: Caller, last: int | None = None) -> list[MessageCard]:
    """All, or the last so many."""
    return [message_card(one) for one in service.catalog.conversations.messages(conversation_id, caller.id, last)]


def message_card(message: Message) -> MessageCard:
    return MessageCard(
        id=message.id,
        role=message.role,
        content=sound(message.content),
        citations=sound(message.citations),
        report=None if message.report is None else redacted_report(message.report),
        support=None if message.support is None else [SupportedSentence(**one) for one in message.support],
        notes=redacted_notes(message.notes),
        created=int(message.created.timestamp()),
    )
