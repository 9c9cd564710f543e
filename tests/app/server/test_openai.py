"""OpenAI's own client is answered as by OpenAI, and its models validate what it gets."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from app import RagPipeline, Settings
from app.server.service import model_name
from tests.app.server.openai_clients import async_openai_of, openai_of

ASKED = [{"role": "user", "content": "Who designed the lighthouse?"}]


@pytest.fixture(scope="module")
def openai(client: httpx2.Client) -> Iterator[OpenAI]:
    with openai_of(client) as found:
        yield found


@pytest.fixture(scope="module")
def model(sampled: Settings) -> str:
    return model_name(sampled.model)


def posted(client: httpx2.Client, path: str, **body: Any) -> httpx2.Response:
    return client.post(f"/v1/{path}", json=body)


def test_a_chat_is_answered_whole_and_in_parts_alike(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": ASKED, "temperature": 0, "max_tokens": 8}
    whole = openai.chat.completions.create(**asked)
    chunks = list(openai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens <= 8
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_every_answer_validates_strictly(client: httpx2.Client, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "messages": ASKED, "max_tokens": 4, "logprobs": True, "top_logprobs": 3}
    whole = posted(client, "chat/completions", **asked, n=2)
    found = ChatCompletion.model_validate_json(whole.content, strict=True)
    assert [choice.index for choice in found.choices] == [0, 1]
    assert found.choices[0].logprobs is not None
    told = found.choices[0].logprobs.content or []
    assert all(len(one.top_logprobs) == 3 and one.logprob <= 0 for one in told)
    streamed = posted(client, "chat/completions", **asked, stream=True)
    events = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        ChatCompletionChunk.model_validate_json(event, strict=True)
    completed = posted(client, "completions", model=model, prompt=["Once", "Twice"], max_tokens=3, logprobs=2, n=2)
    completion = Completion.model_validate_json(completed.content, strict=True)
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    embedded = posted(client, "embeddings", model="minilm", input=["a", "b"])
    assert len(CreateEmbeddingResponse.model_validate_json(embedded.content, strict=True).data) == 2


def test_a_collection_is_asked_as_a_model(openai: OpenAI, model: str, pipeline: RagPipeline) -> None:
    asked: Any = {"messages": ASKED, "temperature": 0, "max_tokens": 6}
    found = openai.chat.completions.create(model=f"{model}@default", **asked)
    (about,) = found.model_extra["ragcache"]  # type: ignore[index]
    assert any(citation["source"].endswith("lighthouse.md") for citation in about["citations"])
    assert about["report"]["chunks"]
    quote = next(citation["quote"] for citation in about["citations"] if citation["quote"])
    document = pipeline.library.catalog.documents
    assert quote["text"] in document.layout(about["citations"][0]["document_id"]).text or quote["text"]
    chunks = list(
        openai.chat.completions.create(model=model, extra_body={"collection": "default"}, stream=True, **asked)
    )
    extras = [chunk.model_extra["ragcache"] for chunk in chunks if chunk.model_extra]  # type: ignore[index]
    assert [extra["citations"] for extra in extras] == [about["citations"]]
    assert [extra["support"] for extra in extras] == [about["support"]]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == found.choices[0].message.content


def test_a_clients_own_system_message_is_served_by_kv_of_another(openai: OpenAI, model: str) -> None:
    messages: Any = [{"role": "system", "content": "You are a pirate, and answer from the excerpts."}, *ASKED]
    found = openai.chat.completions.create(model=f"{model}@default", messages=messages, max_tokens=4)
    report = found.model_extra["ragcache"][0]["report"]  # type: ignore[index]
    assert {chunk["system"] for chunk in report["chunks"]} == {"other"}


def test_turns_before_are_history(openai: OpenAI, model: str) -> None:
    messages: Any = [
        *ASKED,
        {"role": "assistant", "content": "Somebody."},
        {"role": "user", "content": "How tall is it?"},
    ]
    found = openai.chat.completions.create(model=f"{model}@default", messages=messages, max_tokens=4)
    report = found.model_extra["ragcache"][0]["report"]  # type: ignore[index]
    assert "condense" in report["seconds"]


def test_every_prompt_counts_once_however_many_choices_it_has(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "prompt": [[5] * 40, [6] * 7, [8] * 23], "max_tokens": 3, "n": 2}
    whole = openai.completions.create(**asked).usage
    *_, last = openai.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    for usage in (whole, last.usage):
        assert usage is not None
        assert usage.prompt_tokens == 40 + 7 + 23
        assert 6 <= usage.completion_tokens <= 18
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_seed_gives_the_same_choices_again_and_no_two_alike(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": ASKED, "temperature": 2, "max_tokens": 12, "n": 3, "seed": 7}
    first, again = (
        [choice.message.content for choice in openai.chat.completions.create(**asked).choices] for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == 3


def test_a_completion_keeps_its_blanks_and_tells_where_its_tokens_begin(
    openai: OpenAI, model: str, pipeline: RagPipeline
) -> None:
    tokens = [*pipeline.answering.template.tokens.ids(" light\n\n house\n")]
    bias = dict.fromkeys(map(str, tokens), 100.0)
    asked: Any = {"model": model, "prompt": "The keeper", "max_tokens": 12, "temperature": 2, "seed": 5, "n": 4}
    whole = openai.completions.create(**asked, logit_bias=bias, logprobs=0).choices
    parts: dict[int, tuple[str, list[int]]] = {index: ("", []) for index in range(4)}
    for chunk in openai.completions.create(**asked, logit_bias=bias, logprobs=0, stream=True):
        (one,) = chunk.choices
        text, offsets = parts[one.index]
        parts[one.index] = (text + one.text, offsets + ((one.logprobs and one.logprobs.text_offset) or []))
    assert any(one.text != one.text.strip() for one in whole)
    for one in whole:
        assert one.logprobs is not None
        told = one.logprobs.tokens or []
        assert one.text == "".join(told)
        assert one.logprobs.text_offset == [len("".join(told[:place])) for place in range(len(told))]
        assert parts[one.index] == (one.text, one.logprobs.text_offset)


def test_an_answer_ends_before_a_stop_string(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "prompt": "The keeper", "temperature": 0, "max_tokens": 12}
    whole = openai.completions.create(**asked).choices[0].text
    stop = whole[len(whole) // 2 :][:2]
    found = openai.completions.create(**asked, stop=[stop])
    assert found.choices[0].text == whole[: whole.index(stop)]
    assert found.choices[0].finish_reason == "stop"


def test_a_bias_and_a_penalty_reach_the_engine(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "prompt": "The keeper", "temperature": 0, "max_tokens": 6}
    found = openai.completions.create(**asked, logit_bias={"500": 100.0}, logprobs=1)
    assert found.choices[0].logprobs is not None
    assert len(set(found.choices[0].logprobs.tokens or [])) == 1


def test_embeddings_are_those_of_the_search(openai: OpenAI, pipeline: RagPipeline) -> None:
    texts = ["the lighthouse", "bread"]
    found = openai.embeddings.create(model="minilm", input=texts)  # as base64
    plain = openai.embeddings.create(model="minilm", input=texts, encoding_format="float")
    expected = pipeline.models.embedder.embed(texts)
    for ours in (found, plain):
        np.testing.assert_allclose([one.embedding for one in ours.data], expected, atol=1e-6)
    assert found.usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0661\u0662": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"max_tokens": 10**6}, None),
        ({"linker": "nope"}, None),
        ({"logit_bias": {"99999999": 1}}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_asked_is_refused_with_its_name(
    client: httpx2.Client, model: str, change: dict[str, Any], param: str | None, stream: bool
) -> None:
    found = posted(client, "chat/completions", **{"model": model, "messages": ASKED, "stream": stream, **change})
    assert found.status_code == 400, found.text
    error = found.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert param is None or (error["param"] or "").startswith(param)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 1}', b"\xff\xfe", b"null"])
def test_a_body_that_is_none_is_refused(client: httpx2.Client, body: bytes) -> None:
    found = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code == 400
    assert found.json()["error"]["message"]


def test_a_model_that_is_not_there_is_told(openai: OpenAI, model: str) -> None:
    for name in ("gpt-4o", f"{model}@nope", f"{model}@../x"):
        with pytest.raises(NotFoundError):
            openai.chat.completions.create(model=name, messages=ASKED)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        openai.embeddings.create(model="text-embedding-3-small", input="x")
    with pytest.raises(BadRequestError):
        openai.completions.create(model=f"{model}@default", prompt="x")


def test_the_async_client_streams(client: httpx2.Client, model: str) -> None:
    async def asked() -> str:
        async with async_openai_of(client) as openai:
            messages: Any = ASKED
            stream = await openai.chat.completions.create(model=model, messages=messages, stream=True, max_tokens=4)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(asked())


def test_curl_streams(client: httpx2.Client, model: str) -> None:
    body = json.dumps({"model": model, "messages": ASKED, "stream": True, "max_tokens": 3})
    url = f"{client.base_url}/v1/chat/completions"
    command = ["curl", "-sN", url, "-H", "Content-Type: application/json", "-d", body]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.endswith("data: [DONE]\n\n")
