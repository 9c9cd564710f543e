"""`/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from app.answering import Answer
from app.answering.stream import AnswerToken, Usage
from app.models.cores import in_thread
from app.server.callers import Asking, Serving
from app.server.events import DONE, event, sound, streamed
from app.server.openai.asking import Start, chat_starts, completion_starts
from app.server.openai.choices import ChoicePiece, begun, pieces_of, unless_gone
from app.server.openai.schemas import (
    AboutAnswer,
    AnsweredMessage,
    CachedTokens,
    ChatChoice,
    ChatLogprobs,
    ChatRequest,
    ChatResponse,
    ChosenLogprob,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    CompletionUsage,
    TopLogprob,
)
from app.server.problems import told
from app.server.queueing import Turn
from ragcache.errors import FAULTS

router = APIRouter(prefix="/v1", tags=["openai"])
Decode = Callable[[Sequence[int]], str]


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
    starts, cites = await in_thread(chat_starts, service, caller, body)
    naming, decode = Naming.new("chatcmpl", body.model), service.decode
    turns = await service.turns.all_of(caller, request, len(starts))
    if body.stream:
        pieces = await unless_gone(request, begun(pieces_of(starts, turns)))
        return streamed(_chat_events(pieces, naming, decode, body, cites, caller.runs_it))
    found = await unless_gone(request, _collected(starts, turns))
    choices = [
        ChatChoice(
            index=index,
            message=AnsweredMessage(content=one.text),
            logprobs=_chat_logprobs(one.tokens, decode) if body.logprobs else None,
            finish_reason="length" if one.finish_reason == "length" else "stop",
        )
        for index, one in enumerate(found)
    ]
    about = [_about(one.answer) for one in found if one.answer is not None] if cites else None
    named = {"id": naming.id, "created": naming.created, "model": naming.model}
    usage = _usage(_usages(found), len(found))
    return _answered(ChatResponse(**named, choices=choices, usage=usage, ragcache=about))


@router.post("/completions", response_model=CompletionResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def completions(request: Request, body: CompletionRequest, service: Serving, caller: Asking) -> Response:
    """OpenAI's: what a text goes on with."""
    caller.check("read")
    starts = await in_thread(completion_starts, service, caller, body)
    naming, decode = Naming.new("cmpl", body.model), service.decode
    turns = await service.turns.all_of(caller, request, len(starts))
    if body.stream:
        pieces = await unless_gone(request, begun(pieces_of(starts, turns)))
        return streamed(_completion_events(pieces, naming, decode, body, caller.runs_it))
    found = await unless_gone(request, _collected(starts, turns))
    choices = [
        CompletionChoice(
            index=index,
            text=one.text,
            logprobs=_completion_logprobs(one.tokens, decode, 0) if body.logprobs is not None else None,
            finish_reason="length" if one.finish_reason == "length" else "stop",
        )
        for index, one in enumerate(found)
    ]
    named = {"id": naming.id, "created": naming.created, "model": naming.model}
    usage = _usage(_usages(found), body.choices)
    return _answered(CompletionResponse(**named, choices=choices, usage=usage))


async def _collected(starts: Sequence[Start], turns: Sequence[Turn]) -> list[Collected]:
    found = [Collected() for _ in starts]
    async with aclosing(pieces_of(starts, turns)) as pieces:
        async for piece in pieces:
            found[piece.index].add(piece)
    return found


def _answered(response: BaseModel) -> Response:
    """As clients expect it: what there is nothing of is null, but for fields of ours."""
    values = response.model_dump(mode="json")
    if values.get("ragcache", 0) is None:
        del values["ragcache"]
    return JSONResponse(sound(values))


# -- streams ----------------------------------------------------------------------------------------------------------


async def _chat_events(
    pieces: AsyncGenerator[ChoicePiece, None],
    naming: Naming,
    decode: Decode,
    body: ChatRequest,
    cites: bool,
    frank: bool,
) -> AsyncIterator[bytes]:
    usages: dict[int, Usage] = {}
    begun_choices: set[int] = set()

    def chunk(index: int, delta: dict[str, Any], more: dict[str, Any] | None = None, **about: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **(more or {})}
        return _chunk("chat.completion.chunk", naming, [choice], **about)

    async def told_pieces() -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            if piece.index not in begun_choices:
                begun_choices.add(piece.index)
                yield chunk(piece.index, {"role": "assistant", "content": ""})
            logprobs = _chat_logprobs(piece.tokens, decode).model_dump() if body.logprobs and piece.tokens else None
            if piece.text or logprobs:
                yield chunk(piece.index, {"content": piece.text}, {"logprobs": logprobs})
            if piece.answer is not None:
                if piece.usage:
                    usages[piece.index] = piece.usage
                if cites:
                    yield chunk(piece.index, {}, ragcache=_about(piece.answer).model_dump(mode="json"))
                yield chunk(piece.index, {}, {"finish_reason": piece.finish_reason})

    async for one in _closed(pieces, told_pieces(), frank):
        yield one
    if body.tells_usage and usages:
        yield _chunk("chat.completion.chunk", naming, [], usage=_usage(usages, body.choices).model_dump())
    yield DONE


async def _completion_events(
    pieces: AsyncGenerator[ChoicePiece, None], naming: Naming, decode: Decode, body: CompletionRequest, frank: bool
) -> AsyncIterator[bytes]:
    usages: dict[int, Usage] = {}
    lengths: dict[int, int] = {}

    async def told_pieces() -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            offset = lengths.get(piece.index, 0)
            lengths[piece.index] = offset + len(piece.text)
            told_logprobs = body.logprobs is not None and piece.tokens
            logprobs = _completion_logprobs(piece.tokens, decode, offset).model_dump() if told_logprobs else None
            choice = {"index": piece.index, "text": piece.text, "logprobs": logprobs, "finish_reason": None}
            if piece.answer is not None:
                choice["finish_reason"] = piece.finish_reason
                if piece.usage:
                    usages[piece.index] = piece.usage
            if piece.text or logprobs or piece.answer is not None:
                yield _chunk("text_completion", naming, [choice])

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
            yield event(told(error, frank))


def _chunk(kind: str, naming: Naming, choices: list[dict[str, Any]], **more: Any) -> bytes:
    named = {"id": naming.id, "object": kind, "created": naming.created, "model": naming.model}
    return event({**named, "choices": choices, **more})


# -- parts ------------------------------------------------------------------------------------------------------------


def _about(answer: Answer) -> AboutAnswer:
    values = answer.to_dict()
    return AboutAnswer(citations=values["citations"], report=values["report"], notes=values["notes"])


def _usages(found: Sequence[Collected]) -> dict[int, Usage]:
    return {index: one.usage for index, one in enumerate(found) if one.usage}


def _usage(usages: Mapping[int, Usage], choices: int) -> CompletionUsage:
    """Of all choices by their numbers, so many to each prompt, which counts once as OpenAI counts."""
    prompts: dict[int, Usage] = {}
    for index, one in usages.items():
        before = prompts.get(index // choices, Usage(0, 0, 0))
        prompts[index // choices] = Usage(max(before.prompt, one.prompt), 0, max(before.cached, one.cached))
    prompt, answers = sum(one.prompt for one in prompts.values()), sum(one.answer for one in usages.values())
    return CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=answers,
        total_tokens=prompt + answers,
        prompt_tokens_details=CachedTokens(cached_tokens=sum(one.cached for one in prompts.values())),
    )


def _chat_logprobs(tokens: Sequence[AnswerToken], decode: Decode) -> ChatLogprobs:
    content = []
    for one in tokens:
        assert one.told is not None
        top = [_logprob(token, logprob, decode) for token, logprob in one.told.top]
        own = _logprob(one.token, one.told.logprob, decode)
        content.append(ChosenLogprob(**own.model_dump(), top_logprobs=top))
    return ChatLogprobs(content=content)


def _logprob(token: int, logprob: float, decode: Decode) -> TopLogprob:
    text = decode([token])
    return TopLogprob(token=text, logprob=max(logprob, LEAST), bytes=list(text.encode("utf-8", "replace")))


LEAST = -9999.0  # JSON has no infinity


def _completion_logprobs(tokens: Sequence[AnswerToken], decode: Decode, offset: int) -> CompletionLogprobs:
    found = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
    for one in tokens:
        assert one.told is not None
        text = decode([one.token])
        found.tokens.append(text)
        found.token_logprobs.append(max(one.told.logprob, LEAST))
        found.top_logprobs.append({decode([token]): max(value, LEAST) for token, value in one.told.top})
        found.text_offset.append(offset)
        offset += len(text)
    return found
