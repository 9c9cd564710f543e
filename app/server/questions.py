"""Questions in conversations. An answer belongs to the server: whoever goes away and comes back finds it whole
(`Last-Event-ID`), and it ends early only where somebody stops it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.answering import Answer, SupportedSentence
from app.answering.conversation import LEFT, NOTHING_ASKED, Conversation
from app.answering.stream import BROKEN, AnswerStream
from app.errors import NotFound
from app.library.catalog.records import Message
from app.models.cores import in_thread
from app.prompt import check_question
from app.server.bodies import RequestBody, Several
from app.server.callers import Asking, Caller
from app.server.conversations import MessageCard, cards_of, found, message_card
from app.server.events import MEDIA_TYPE, event, sound, streamed
from app.server.generations import ServedAnswer
from app.server.problems import RefusedRequest
from app.server.queueing import kept
from app.server.redaction import redacted_notes, redacted_report
from app.server.service import Service, Serving
from app.settings import RetrievalMode
from ragcache.report import FULL

router = APIRouter(prefix="/v1/conversations/{conversation_id}", tags=["conversations"])
LONGEST_QUESTION = 200_000  # characters
LARGEST = 2**31 - 1
SEEDS = 2**31  # that are drawn: any client's numbers hold them
EXCHANGE = 2  # messages
MOST_MESSAGES = 2000  # of a conversation, which a client is told whole
Named = Annotated[str, Field(max_length=5000)]  # as files may be
Beginning = Callable[[Callable[[], None]], ServedAnswer]
_PARTS = {"user": "question", "assistant": "answer"}
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {}}}}


class AnswerChoices(RequestBody):
    """How a question is answered; what is left out is as in the server's settings."""

    model_config = ConfigDict(extra="forbid")
    stream: bool = True
    max_tokens: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    chunks: Annotated[int, Field(ge=1, le=1000)] | None = None
    retrieval: RetrievalMode | None = None
    # To look for the chunks in.
    documents: Annotated[Several[int | Named], Field(min_length=1, max_length=1000)] | None = None
    # The last message that the client has seen: where there is another one behind it, it is told so (409).
    newest: Annotated[int, Field(ge=1, lt=2**63)] | None = None


class AskedQuestion(AnswerChoices):
    question: Annotated[str, Field(min_length=1, max_length=LONGEST_QUESTION)]
    linker: Annotated[str, Field(max_length=200)] | None = None
    # A question of this conversation, whose place this one takes, with all behind it, when its answer is stored.
    instead_of: Annotated[int, Field(ge=1, lt=2**63)] | None = None


class EndedAnswer(BaseModel):
    """An answer at its end, which is stored by then; none where it was stopped before its first word."""

    id: str
    question: MessageCard | None
    answer: MessageCard | None
    notes: list[str]


class Stopping(BaseModel):
    stopping: bool  # False where no answer was being made


@router.post("/messages", response_model=EndedAnswer, responses=EVENTS)
async def ask(
    request: Request, conversation_id: str, body: AskedQuestion, service: Serving, caller: Asking
) -> Response:
    """The answer as it comes, as events `start`, `piece` and `done` or `error`; whole where `stream` is false. It goes
    on where the client goes away.
    """
    begun = partial(_asked, conversation_id, body, service, caller)
    return await _told(await _begun(begun, request, service, caller), body.stream)


@router.post("/again", response_model=EndedAnswer, responses=EVENTS)
async def again(
    request: Request, conversation_id: str, body: AnswerChoices, service: Serving, caller: Asking
) -> Response:
    """The last question, answered without any cache to compare, and not stored."""
    begun = partial(_compared, conversation_id, body, service, caller)
    return await _told(await _begun(begun, request, service, caller), body.stream)


@router.get("/answer", response_model=None, responses=EVENTS)
async def follow(
    conversation_id: str,
    service: Serving,
    caller: Asking,
    last_event_id: Annotated[str, Header(max_length=64)] = "",
) -> Response:
    """The answer that is being made, or was made last: all events behind that of `Last-Event-ID`."""
    await in_thread(found, conversation_id, service, caller)
    generation = service.generations.find(conversation_id, last_event_id)
    if generation is not None:
        return streamed(generation.follow(generation.after(last_event_id)))
    stored = await in_thread(cards_of, conversation_id, service, caller, EXCHANGE)
    if not stored:
        raise NotFound(NOTHING_ASKED)
    said = stored[-1] if stored[-1].role == "assistant" else None  # or a question stands there alone
    last = EndedAnswer(id="", question=_last(stored, "user"), answer=said, notes=said.notes if said else [])
    return Response(event(last.model_dump(), name="done"), media_type=MEDIA_TYPE)


@router.post("/stop")
def stop(conversation_id: str, service: Serving, caller: Asking) -> Stopping:
    """The answer ends at its next token, and is stored as far as it came."""
    found(conversation_id, service, caller)
    return Stopping(stopping=service.generations.stop(conversation_id))


async def _begun(begin: Beginning, request: Request, service: Service, caller: Caller) -> ServedAnswer:
    """In its turn, which lasts as long as the answer does, whoever reads that."""
    over = kept(await service.turns.of(caller, request), request)

    def begun() -> ServedAnswer:
        with ExitStack() as failed:
            failed.callback(over)
            generation = begin(over)
            failed.pop_all()
        return generation

    return await asyncio.shield(asyncio.ensure_future(in_thread(begun)))  # or nobody would end the turn


async def _told(generation: ServedAnswer, stream: bool) -> Response:
    return streamed(generation.follow()) if stream else JSONResponse(await generation.ended())


def _asked(
    conversation_id: str, body: AskedQuestion, service: Service, caller: Caller, over: Callable[[], None]
) -> ServedAnswer:
    """Raises what can be told at once."""
    stored, collection = found(conversation_id, service, caller)
    question, options = check_question(body.question), _options(body, service)
    options["linker"], options["border"] = body.linker, caller.border_of(collection)
    options["collection_id"] = collection.id
    if body.instead_of is None and service.catalog.conversations.count_messages(stored.id) >= MOST_MESSAGES:
        raise RefusedRequest(403, f"this conversation has {MOST_MESSAGES:,} messages: begin another one", code="limit")
    answering = service.pipeline.answering
    answering.cache.chosen(body.linker)
    answering.check(question, body.max_tokens or service.settings.max_tokens)
    conversation = Conversation(service.pipeline.start, service.catalog, collection.name, stored.id, body.newest)
    conversation.check_newest()
    if body.instead_of is not None:
        conversation.place_of(body.instead_of)
    return service.generations.start(
        stored.id,
        lambda: conversation.stream(question, instead_of=body.instead_of, **options),
        partial(_stored, conversation),
        over,
        caller.runs_it,
        caller.id,
        {"question": question, "instead_of": body.instead_of, "compares": False},
        lambda: {_PARTS[one.role]: one.id for one in conversation.saved} or None,
    )


def _compared(
    conversation_id: str, body: AnswerChoices, service: Service, caller: Caller, over: Callable[[], None]
) -> ServedAnswer:
    stored, collection = found(conversation_id, service, caller)
    conversation = Conversation(service.pipeline.start, service.catalog, collection.name, stored.id, body.newest)
    messages = conversation.messages
    conversation.check_newest()
    asked = _last([message_card(one) for one in messages], "user")
    if asked is None:
        raise NotFound(NOTHING_ASKED)
    earlier = messages[-1].report if messages[-1].role == "assistant" else None
    options = _options(body, service, (earlier or {}).get("seed"))
    options["linker"], options["border"] = FULL, caller.border_of(collection)
    options["collection_id"] = collection.id

    def stream() -> AnswerStream:
        return service.history.compares(conversation.again(**options), earlier)

    about = {"question": asked.content, "instead_of": None, "compares": True}
    return service.generations.start(stored.id, stream, _comparison, over, caller.runs_it, caller.id, about)


def _options(body: AnswerChoices, service: Service, seed: int | None = None) -> dict[str, Any]:
    """What is sampled has a seed, which the answer's report keeps, so that one which is compared can be made with
    the same: words that differ are the cache's then. `seed`: where the client names none.
    """
    given = {name: value for name in ("temperature", "top_p", "seed") if (value := getattr(body, name)) is not None}
    options: dict[str, Any] = {"max_tokens": body.max_tokens, "top_k": body.chunks, "retrieval": body.retrieval}
    options["sampling"] = sampling = replace(service.pipeline.models.sampling, **given)
    if sampling.temperature and body.seed is None:
        drawn = secrets.randbelow(SEEDS) if sampling.seed is None else sampling.seed
        options["sampling"] = replace(sampling, seed=drawn if seed is None else seed)
    if body.documents is not None:
        options["where"] = {"document": body.documents}
    return options


def _stored(conversation: Conversation, answer: Answer) -> Mapping[str, Any]:
    """What is told of an answer, when it is stored. Raises CatalogError where it cannot be, and RefusedRequest where it
    broke off and takes no other's place.
    """
    if LEFT in answer.notes:
        raise RefusedRequest(503, f"{BROKEN}: {LEFT}", code="broken")
    conversation.save()
    saved = conversation.saved
    return _ended(_of(saved, "user"), _of(saved, "assistant"), answer)


def _comparison(answer: Answer) -> Mapping[str, Any]:
    told = answer.to_dict()
    card = MessageCard(
        id=None,
        role="assistant",
        content=answer.text,
        citations=sound(told["citations"]),
        report=redacted_report(told["report"]),
        support=[SupportedSentence(**one) for one in told["support"]],
        notes=redacted_notes(answer.notes),
        created=None,
    )
    return _ended(None, card, answer)


def _ended(question: MessageCard | None, said: MessageCard | None, answer: Answer) -> Mapping[str, Any]:
    return {
        "question": question and question.model_dump(),
        "answer": said and said.model_dump(),
        "notes": redacted_notes(answer.notes),
    }


def _of(messages: list[Message], role: str) -> MessageCard | None:
    return _last([message_card(one) for one in messages], role)


def _last(messages: list[MessageCard], role: str) -> MessageCard | None:
    return next((one for one in reversed(messages) if one.role == role), None)
