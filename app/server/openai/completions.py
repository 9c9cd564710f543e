"""`/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from app.answering import Answer
from app.answering.stream import AnswerToken, Usage
from app.models.cores import in_thread
from app.server.callers import Asking
from app.server.events import DONE, event, streamed, written
from app.server.openai.choices import ChoicePiece, Refused, begun, pieces_of, unless_gone
from app.server.openai.logprobs import TokenNames, chat_logprobs, completion_logprobs
from app.server.openai.request_format import Start, chat_starts, completion_starts
from app.server.openai.schemas import (
    AboutAnswer,
    AnsweredMessage,
    CachedTokens,
    ChatChoice,
    ChatRequest,
    ChatResponse,
    CompletionChoice,
    CompletionRequest,
    CompletionResponse,
    CompletionUsage,
)
from app.server.problems import stream_problem
from app.server.queueing import Turn
from app.server.redaction import redacted_notes, redacted_report
from app.server.service import Serving
from ragcache.errors import FAULTS

router = APIRouter(prefix="/v1", tags=["openai"])
TOKEN = 5  # levels below a response: what is told of one token
MANY = 16  # tokens in one piece; more of them are told on a thread


@dataclass
class Collected:
    """One choice, whole."""

    texts: list[str] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    answer: Answer | None = None
    finish_reason: str = ""
    usage: Usage | None = None

    def add(self, piece: ChoicePiece) -> None:
        self.texts.append(piece.text)
        self.tokens += piece.tokens
        if piece.answer is not None:
            self.answer, self.finish_reason, self.usage = piece.answer, piece.finish_reason, piece.usage

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reason(self) -> Literal["stop", "length"]:
        return "length" if self.finish_reason == "length" else "stop"


@dataclass(frozen=True)
class Naming:
    """What all parts of one response say."""

    id: str
    model: str
    created: int

    @classmethod
    def new(cls, kind: str, model: str) -> Naming:
        return cls(f"{kind}-{secrets.token_hex(12)}", model, int(time.time()))


@router.post("/chat/completions", response_model=ChatResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def chat_completions(request: Request, body: ChatRequest, service: Serving, caller: Asking) -> Response:
    """OpenAI's, of the model alone, or of a collection: `model` is then NAME@COLLECTION."""
    caller.check("read")
    await unless_gone(request, service.come())
    starts, cites = await in_thread(chat_starts, service, caller, body)
    naming, names = Naming.new("chatcmpl", body.model), TokenNames(service.bytes_of)
    turns = await service.turns.all_of(caller, request, len(starts))
    refused = partial(service.key_watch.end_of, caller.id)
    if body.stream:
        pieces = await unless_gone(request, begun(pieces_of(starts, turns, refused)))
        return streamed(_chat_events(pieces, naming, names, body, cites, caller.runs_it))
    return await unless_gone(request, _whole(starts, turns, refused, partial(_chat_body, naming, names, body, cites)))


@router.post("/completions", response_model=CompletionResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def completions(request: Request, body: CompletionRequest, service: Serving, caller: Asking) -> Response:
    """OpenAI's: what a text goes on with."""
    caller.check("read")
    await unless_gone(request, service.come())
    starts = await in_thread(completion_starts, service, caller, body)
    naming, names = Naming.new("cmpl", body.model), TokenNames(service.bytes_of)
    turns = await service.turns.all_of(caller, request, len(starts))
    refused = partial(service.key_watch.end_of, caller.id)
    if body.stream:
        pieces = await unless_gone(request, begun(pieces_of(starts, turns, refused)))
        return streamed(_completion_events(pieces, naming, names, body, caller.runs_it))
    return await unless_gone(request, _whole(starts, turns, refused, partial(_completion_body, naming, names, body)))


async def _whole(
    starts: Sequence[Start],
    turns: Sequence[Turn],
    refused: Refused,
    written_of: Callable[[Sequence[Collected]], bytes],
) -> Response:
    """What is told of thousands of tokens is made on a thread, in the turn of the last of them."""
    last = turns[0]
    found = await _collected(starts, turns, refused, last)
    body = await last.compute(partial(written_of, found))
    last.end()
    return Response(body, media_type="application/json")


async def _collected(starts: Sequence[Start], turns: Sequence[Turn], refused: Refused, kept: Turn) -> list[Collected]:
    found = [Collected() for _ in starts]
    async with aclosing(pieces_of(starts, turns, refused, kept)) as pieces:
        async for piece in pieces:
            found[piece.index].add(piece)
    return found


def _chat_body(naming: Naming, names: TokenNames, body: ChatRequest, cites: bool, found: Sequence[Collected]) -> bytes:
    choices = [
        ChatChoice(index=index, message=AnsweredMessage(content=one.text), finish_reason=one.reason)
        for index, one in enumerate(found)
    ]
    about = [_about(one.answer) for one in found if one.answer is not None] if cites else None
    usage = _usage(_usages(found), len(found))
    response = ChatResponse(**asdict(naming), choices=choices, usage=usage, ragcache=about)
    return _body(response, [chat_logprobs(one.tokens, names) for one in found] if body.logprobs else [])


def _completion_body(naming: Naming, names: TokenNames, body: CompletionRequest, found: Sequence[Collected]) -> bytes:
    choices = [
        CompletionChoice(index=index, text=one.text, finish_reason=one.reason) for index, one in enumerate(found)
    ]
    response = CompletionResponse(**asdict(naming), choices=choices, usage=_usage(_usages(found), body.choices))
    told = [completion_logprobs(one.tokens, names) for one in found] if body.logprobs is not None else []
    return _body(response, told)


def _body(response: BaseModel, logprobs: Sequence[dict[str, Any]]) -> bytes:
    """As clients expect it: what there is nothing of is null, but for fields of ours."""
    values = response.model_dump(mode="json")
    if values.get("ragcache", 0) is None:
        del values["ragcache"]
    for choice, told_logprobs in zip(values["choices"], logprobs, strict=False):
        choice["logprobs"] = told_logprobs
    return written(values, TOKEN)


# -- streams ----------------------------------------------------------------------------------------------------------


async def _chat_events(
    pieces: AsyncGenerator[ChoicePiece, None],
    naming: Naming,
    names: TokenNames,
    body: ChatRequest,
    cites: bool,
    frank: bool,
) -> AsyncIterator[bytes]:
    usages: dict[int, Usage] = {}
    begun_choices: set[int] = set()

    def chunk(index: int, delta: dict[str, Any], more: dict[str, Any] | None = None, **about: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **(more or {})}
        return _chunk("chat.completion.chunk", naming, [choice], **about)

    def said(piece: ChoicePiece) -> bytes:
        logprobs = chat_logprobs(piece.tokens, names) if body.logprobs and piece.tokens else None
        return chunk(piece.index, {"content": piece.text}, {"logprobs": logprobs})

    def cited(index: int, answer: Answer) -> bytes:
        return chunk(index, {}, ragcache=_about(answer).model_dump(mode="json"))

    async def told_pieces() -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            if piece.index not in begun_choices:
                begun_choices.add(piece.index)
                yield chunk(piece.index, {"role": "assistant", "content": ""})
            if piece.text or (body.logprobs and piece.tokens):
                yield await _made(said, piece)
            if piece.answer is not None:
                if piece.usage:
                    usages[piece.index] = piece.usage
                if cites:
                    yield await in_thread(cited, piece.index, piece.answer)
                yield chunk(piece.index, {}, {"finish_reason": piece.finish_reason})

    async for one in _closed(pieces, told_pieces(), frank):
        yield one
    if body.tells_usage and usages:
        yield _chunk("chat.completion.chunk", naming, [], usage=_usage(usages, body.choices).model_dump())
    yield DONE


async def _completion_events(
    pieces: AsyncGenerator[ChoicePiece, None], naming: Naming, names: TokenNames, body: CompletionRequest, frank: bool
) -> AsyncIterator[bytes]:
    usages: dict[int, Usage] = {}

    def said(piece: ChoicePiece) -> bytes:
        tells = body.logprobs is not None and piece.tokens
        logprobs = completion_logprobs(piece.tokens, names) if tells else None
        reason = None if piece.answer is None else piece.finish_reason
        choice = {"index": piece.index, "text": piece.text, "logprobs": logprobs, "finish_reason": reason}
        return _chunk("text_completion", naming, [choice])

    async def told_pieces() -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            if piece.usage:
                usages[piece.index] = piece.usage
            if piece.text or (body.logprobs is not None and piece.tokens) or piece.answer is not None:
                yield await _made(said, piece)

    async for one in _closed(pieces, told_pieces(), frank):
        yield one
    if body.tells_usage and usages:
        yield _chunk("text_completion", naming, [], usage=_usage(usages, body.choices).model_dump())
    yield DONE


async def _closed(
    pieces: AsyncGenerator[ChoicePiece, None], events: AsyncGenerator[bytes, None], frank: bool
) -> AsyncIterator[bytes]:
    """What goes wrong amid them is told as the last of them; a client that goes away ends the answers."""
    async with aclosing(pieces), aclosing(events):
        try:
            async for one in events:
                yield one
        except FAULTS as error:
            yield event(stream_problem(error, frank))


async def _made(told_of: Callable[[ChoicePiece], bytes], piece: ChoicePiece) -> bytes:
    """On a thread where it would hold the event loop up."""
    return await in_thread(told_of, piece) if len(piece.tokens) > MANY else told_of(piece)


def _chunk(kind: str, naming: Naming, choices: list[dict[str, Any]], **more: Any) -> bytes:
    named = {"id": naming.id, "object": kind, "created": naming.created, "model": naming.model}
    return event({**named, "choices": choices, **more})


# -- parts ------------------------------------------------------------------------------------------------------------


def _about(answer: Answer) -> AboutAnswer:
    values = answer.to_dict()
    report, notes = redacted_report(values["report"]), redacted_notes(values["notes"])
    return AboutAnswer(citations=values["citations"], support=values["support"], report=report, notes=notes)


def _usages(found: Sequence[Collected]) -> dict[int, Usage]:
    return {index: one.usage for index, one in enumerate(found) if one.usage}


def _usage(usages: Mapping[int, Usage], choices: int) -> CompletionUsage:
    """Of all choices by their numbers, so many to each prompt, which counts once as OpenAI counts: as it was for the
    choice that found least of it, since the others have what that one computed.
    """
    prompts: dict[int, Usage] = {}
    for index, one in usages.items():
        before = prompts.get(index // choices, one)
        prompts[index // choices] = Usage(max(before.prompt, one.prompt), 0, min(before.cached, one.cached))
    prompt, answers = sum(one.prompt for one in prompts.values()), sum(one.answer for one in usages.values())
    return CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=answers,
        total_tokens=prompt + answers,
        prompt_tokens_details=CachedTokens(cached_tokens=sum(one.cached for one in prompts.values())),
    )
