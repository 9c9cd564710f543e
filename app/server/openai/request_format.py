"""From a request of OpenAI's to what is asked of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from app.answering.question_options import Asked
from app.answering.stream import AnswerStream
from app.chat.chat import ChatOptions
from app.chat.messages import CachePart, ChatTurn, TextPart
from app.errors import NotFound
from app.prompt import Turn
from app.server.callers import Caller
from app.server.openai.schemas import CacheContent, ChatRequest, CompletionRequest, RequestMessage, Sampled
from app.server.problems import RefusedRequest
from app.server.service import Service
from ragcache.sampling import Sampling
from ragcache.together import Together

LARGEST_SEED = 2**63
MOST_CHOICES = 64
SAME = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
_TOKEN = re.compile(r"[0-9]{1,10}")
Start = Callable[[], AnswerStream]


def sampling_of(service: Service, asked: Sampled, logprobs: int | None) -> Sampling:
    """What is left out is the model's own. Raises ConfigError."""
    given = {name: value for name in SAME if (value := getattr(asked, name)) is not None}
    if asked.top_k is not None:
        given["top_k"] = max(0, asked.top_k)
    if asked.seed is not None:
        given["seed"] = asked.seed % LARGEST_SEED
    if asked.logit_bias:
        given["logit_bias"] = {_token(name): value for name, value in asked.logit_bias.items()}
    return replace(service.pipeline.models.sampling, **given, logprobs=logprobs)


def seeded(sampling: Sampling, choices: int) -> list[Sampling]:
    """One for each choice: the same seed gives them all again, and no two alike."""
    if sampling.seed is None:
        return [sampling] * choices
    return [replace(sampling, seed=(sampling.seed + place) % LARGEST_SEED) for place in range(choices)]


def together_of(body: Sampled) -> Together | None:
    """Of the choices of one prompt."""
    return Together(body.choices) if body.choices > 1 else None


def chat_starts(service: Service, caller: Caller, body: ChatRequest) -> tuple[list[Start], bool]:
    """Of each choice, and whether they answer from documents."""
    if body.top_logprobs is not None and not body.logprobs:
        raise RefusedRequest(400, "top_logprobs: set logprobs to true too", param="top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    samplings = seeded(sampling_of(service, body, logprobs), body.choices)
    name = _collection(service, body.model, body.collection)
    most = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    turns = [_turn(message) for message in body.messages]
    if name is None:
        chat = service.pipeline.chat
        options = replace(_options(caller, body), max_tokens=most, together=together_of(body))
        resolve = service.contexts.resolver(caller.id)
        starts = [partial(chat.start, turns, replace(options, sampling=one), resolve) for one in samplings]
        return [partial(service.watched, start) for start in starts], False
    collection = caller.collection(service.catalog, name)
    system, history, question = _conversation(turns)
    asked = Asked(
        collection=collection.name,
        collection_id=collection.id,
        top_k=body.top_k_chunks,
        max_tokens=most,
        linker=body.linker,
        history=history,
        stop=body.stops,
        system=system,
        system_owner=caller.id,
        border=caller.border_of(collection),
        together=together_of(body),
    )
    return [partial(service.pipeline.start, question, replace(asked, sampling=one)) for one in samplings], True


def completion_starts(service: Service, caller: Caller, body: CompletionRequest) -> list[Start]:
    """Of each choice of each prompt, in this order."""
    if _collection(service, body.model, None) is not None:
        raise RefusedRequest(400, "model: a collection is asked by /v1/chat/completions", param="model")
    prompts: Sequence[str | Sequence[int]]
    if isinstance(body.prompt, str) or (body.prompt and isinstance(body.prompt[0], int)):
        prompts = [body.prompt]
    else:
        prompts = body.prompt  # type: ignore[assignment]
    if not prompts or len(prompts) * body.choices > MOST_CHOICES:
        raise RefusedRequest(400, f"prompt: give 1 to {MOST_CHOICES} prompts, each choice counted", param="prompt")
    chat = service.pipeline.chat
    options = _options(caller, body)
    samplings = seeded(sampling_of(service, body, body.logprobs), body.choices)
    alike = [(prompt, replace(options, together=together_of(body))) for prompt in prompts]
    starts = [partial(chat.complete, prompt, replace(own, sampling=one)) for prompt, own in alike for one in samplings]
    return [partial(service.watched, start) for start in starts]


def _options(caller: Caller, body: ChatRequest | CompletionRequest) -> ChatOptions:
    own = ChatOptions(max_tokens=body.max_tokens, stop=body.stops, linker=body.linker)
    return replace(own, border=caller.border, owner=caller.id)


def _collection(service: Service, model: str, named: str | None) -> str | None:
    """None where the model is asked without documents. Raises NotFound for a model that is not here."""
    own, _, collection = model.partition("@")
    if own != service.model:
        raise NotFound(f"no model {own!r}: this server has {service.model!r}, and GET /v1/models lists its collections")
    return collection or named


def _turn(message: RequestMessage) -> ChatTurn:
    content = message.content
    if content is None:
        raise RefusedRequest(400, "messages: one has no content", param="messages")
    role = "system" if message.role == "developer" else message.role
    if isinstance(content, str):
        return ChatTurn(role, (TextPart(content),))
    parts = [CachePart(one.cache_id) if isinstance(one, CacheContent) else TextPart(one.text) for one in content]
    if not parts:
        raise RefusedRequest(400, "messages: the content of one is an empty list", param="messages")
    return ChatTurn(role, tuple(parts))


def _conversation(turns: Sequence[ChatTurn]) -> tuple[str | None, list[Turn], str]:
    """System prompt, turns before, and the question, which the last message is."""
    if any(turn.caches for turn in turns):
        raise RefusedRequest(400, "messages: a collection brings its own chunks, so give texts", param="messages")
    if turns[-1].role != "user":
        raise RefusedRequest(400, "messages: the last one is to be the user's question", param="messages")
    system = "\n\n".join("".join(turn.texts) for turn in turns if turn.role == "system")
    said = [(turn.role, "".join(turn.texts)) for turn in turns if turn.role != "system"]
    history = [
        (question, answer)
        for (asker, question), (answerer, answer) in pairwise(said)
        if (asker, answerer) == ("user", "assistant") and question.strip() and answer.strip()
    ]
    return system or None, history, said[-1][1]


def _token(name: str) -> int:
    if not _TOKEN.fullmatch(name):
        raise RefusedRequest(400, f"logit_bias: {name!r:.40} is no token id", param="logit_bias")
    return int(name)
