"""Requests that OpenAI's types allow are answered by what its types demand: every field that is required, each of its
type, and none that they do not know but our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx2
import pytest
from openai.types import Completion, CreateEmbeddingResponse, ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams as ChatParams
from openai.types.completion_create_params import CompletionCreateParams
from openai.types.embedding_create_params import EmbeddingCreateParams
from pydantic import BaseModel, TypeAdapter, ValidationError

from app import Settings
from app.server.service import model_name

Checked = TypeVar("Checked", bound=BaseModel)
OURS = {"ragcache"}
ASKED = [{"role": "user", "content": "Who designed the lighthouse?"}]
HISTORY = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
    {"role": "assistant", "content": "Hello!"},
    *ASKED,
]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no tools": {"tools": [], "response_format": {"type": "text"}},
    "history": {"messages": HISTORY},
    "choices": {"n": 2, "seed": 3, "temperature": 1.5, "top_p": 0.9, "presence_penalty": 0.5, "stop": ["x", "y"]},
    "logprobs": {**LOGPROBS, "n": 2, "logit_bias": {"500": 3}},
    "no other tokens": {"logprobs": True},
    "ended by length": {"max_tokens": None, "max_completion_tokens": 1},
    "what only OpenAI does": {"user": "me", "store": False, "metadata": {"a": "b"}, "service_tier": "auto"},
}
TEXTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"prompt": ["Once", "Twice"], "n": 2, "logprobs": 2, "stop": "x"},
    "tokens": {"prompt": [[5, 6, 7], [8]], "logprobs": 0},
    "sampled": {"temperature": 2, "seed": 1, "frequency_penalty": 1, "best_of": 1, "echo": False},
}


@pytest.fixture(scope="module")
def model(sampled: Settings) -> str:
    return model_name(sampled.model)


def posted(client: httpx2.Client, path: str, params: Any, body: dict[str, Any]) -> httpx2.Response:
    TypeAdapter(params).validate_python(body)
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response


def events(response: httpx2.Response) -> list[str]:
    """The data of each, but for the last, which says that there are no more."""
    *told, done = response.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    assert all(one.startswith("data: ") and "\n" not in one for one in told)
    return [one.removeprefix("data: ") for one in told]


def validated(kind: type[Checked], text: str | bytes) -> Checked:
    found = kind.model_validate_json(text, strict=True)
    assert list(unknown(found, json.loads(text))) == []
    return found


def unknown(found: BaseModel, values: dict[str, Any], place: str = "") -> Iterator[str]:
    """Fields that OpenAI's type has no name for."""
    yield from (f"{place}{name}" for name in found.model_extra or () if name not in OURS)
    for name in type(found).model_fields:
        own = getattr(found, name)
        for index, one in enumerate(own if isinstance(own, list) else [own]):
            if isinstance(one, BaseModel):
                told = values[name][index] if isinstance(own, list) else values[name]
                yield from unknown(one, told, f"{place}{name}.")


def ended(text: str) -> str:
    """With a reason: the type for parts of a text is that for whole ones, and OpenAI itself sends null in it."""
    return text.replace('"finish_reason":null', '"finish_reason":"stop"')


def check_usage(usage: Any, most: int) -> None:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > 0
    assert 0 < usage.completion_tokens <= most
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("change", CHATS.values(), ids=CHATS)
def test_chats(client: httpx2.Client, model: str, change: dict[str, Any], documents: bool) -> None:
    named = f"{model}@default" if documents else model
    body = {"model": named, "messages": ASKED, "max_tokens": 3, **change}
    choices = body.get("n", 1)
    found = validated(ChatCompletion, posted(client, "chat/completions", ChatParams, body).content)
    assert [one.index for one in found.choices] == list(range(choices))
    check_usage(found.usage, 3 * choices)
    assert ("ragcache" in (found.model_extra or {})) == documents
    assert (found.choices[0].logprobs is not None) == bool(body.get("logprobs"))

    told = events(posted(client, "chat/completions", ChatParams, body | USAGE))
    chunks = [validated(ChatCompletionChunk, one) for one in told]
    assert len({(one.id, one.created, one.model) for one in chunks}) == 1
    *parts, last = chunks
    assert last.choices == []
    check_usage(last.usage, 3 * choices)
    for index in range(choices):
        own = [one.choices[0] for one in parts if one.choices[0].index == index]
        assert [one.delta.role for one in own] == ["assistant", *[None] * (len(own) - 1)]
        assert [one.finish_reason for one in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1].finish_reason in ("stop", "length")
        if body.get("logprobs"):
            tokens = sum(len(one.logprobs.content or []) for one in own if one.logprobs)
            assert 0 < tokens <= 3
    assert sum("ragcache" in (one.model_extra or {}) for one in parts) == (choices if documents else 0)


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS)
def test_completions(client: httpx2.Client, model: str, change: dict[str, Any]) -> None:
    body = {"model": model, "prompt": "The keeper", "max_tokens": 3, **change}
    several = isinstance(body["prompt"], list)
    choices = body.get("n", 1) * (len(body["prompt"]) if several else 1)
    found = validated(Completion, posted(client, "completions", CompletionCreateParams, body).content)
    assert [one.index for one in found.choices] == list(range(choices))
    check_usage(found.usage, 3 * choices)
    streamed = events(posted(client, "completions", CompletionCreateParams, body | USAGE))
    chunks = [validated(Completion, ended(one)) for one in streamed]
    assert chunks[-1].choices == []
    check_usage(chunks[-1].usage, 3 * choices)
    for index in range(choices):
        own = [one for text in streamed for one in json.loads(text)["choices"] if one["index"] == index]
        assert [one["finish_reason"] is None for one in own] == [*[True] * (len(own) - 1), False]
        for one in (one.choices[0] for one in chunks[:-1]):
            logprobs = one.logprobs
            assert logprobs is None or len(logprobs.tokens or []) == len(logprobs.token_logprobs or [])


@pytest.mark.parametrize("change", [{}, {"input": ["a", "b"]}, {"encoding_format": "base64"}, {"dimensions": 384}])
def test_embeddings(client: httpx2.Client, change: dict[str, Any]) -> None:
    body = {"model": "minilm", "input": "the lighthouse", **change}
    text = posted(client, "embeddings", EmbeddingCreateParams, body).text
    if body.get("encoding_format") == "base64":  # which OpenAI's own client decodes before its type sees it
        text = json.dumps(json.loads(text) | {"data": [one | {"embedding": [0.5]} for one in json.loads(text)["data"]]})
    assert [one.index for one in validated(CreateEmbeddingResponse, text).data] == [
        *range(2 if "input" in change else 1)
    ]


def test_models(client: httpx2.Client, model: str) -> None:
    listed = client.get("/v1/models").json()
    assert (set(listed), listed["object"]) == ({"object", "data"}, "list")
    for one in listed["data"]:
        validated(Model, json.dumps(one))
        assert validated(Model, client.get(f"/v1/models/{one['id']}").content).id == one["id"]
    assert {model, f"{model}@default"} <= {one["id"] for one in listed["data"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "chat/completions", {"model": "nope", "messages": ASKED}, 404),
        ("POST", "chat/completions", {"messages": ASKED}, 400),
        ("POST", "chat/completions", [], 400),
        ("POST", "completions", {"model": "minilm@", "prompt": ""}, 404),
        ("POST", "embeddings", {"model": "minilm", "input": []}, 400),
        ("GET", "models/nope", None, 404),
        ("GET", "nope", None, 404),
        ("DELETE", "models", None, 405),
    ],
)
def test_errors(client: httpx2.Client, method: str, path: str, body: object, status: int) -> None:
    found = client.request(method, f"/v1/{path}", json=body)
    assert found.status_code == status, found.text
    assert set(found.json()) == {"error"}
    assert validated(ErrorObject, json.dumps(found.json()["error"])).message


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Model, '{"id": "a", "object": "model", "created": 1}'), (Model, '{"id": 1}'), (ErrorObject, '{"message": "a"}')],
)
def test_what_lacks_a_field_would_be_seen(kind: type[BaseModel], text: str) -> None:
    with pytest.raises(ValidationError):
        validated(kind, text)


def test_a_field_of_our_own_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        validated(Model, '{"id": "a", "object": "model", "created": 1, "owned_by": "us", "more": 1}')
