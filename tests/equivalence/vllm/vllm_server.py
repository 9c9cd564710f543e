"""The HTTP server with `engine="vllm"`: clients are answered as with torch, and those that go away free the engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI

from app import RagPipeline, Settings
from app.server.service import Service, model_name
from tests.app.filling import fill
from tests.app.server.event_streams import asked, text_of
from tests.app.server.openai_clients import openai_of
from tests.app.server.serving import serving
from tests.tiny_folder import write_tiny_folder
from tests.vllm_state import drain, free_blocks
from tests.waiting import wait_until

QUESTION = [{"role": "user", "content": "Who designed the lighthouse?"}]
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def settings(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("served")
    return Settings(
        engine="vllm", model=str(write_tiny_folder(folder / "tiny", smollm2, head_dim=32, hidden_size=128)),
        dtype="float32", vllm_kv_bytes=64_000_000, data_dir=folder / "data", cache_dir=folder / "cache", codec="raw",
        linker="query", max_tokens=12,
    )  # fmt: skip


@pytest.fixture(scope="module")
def theirs(settings: Settings) -> Iterator[RagPipeline]:
    """The torch engine over the same catalog and the same KV, which it has computed."""
    with RagPipeline(settings.model_copy(update={"engine": "torch"})) as opened:
        fill(opened, ("bakery.md", "lighthouse.md"))
        yield opened


@pytest.fixture(scope="module")
def service(settings: Settings, theirs: RagPipeline) -> Service:
    """Loaded, which takes vLLM longer than a server may take to start."""
    service = Service(settings)
    service.pipeline.load()
    return service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx2.Client]:
    with serving(service) as client:
        client.timeout = PATIENCE_S
        yield client


@pytest.fixture(scope="module")
def openai(client: httpx2.Client) -> Iterator[OpenAI]:
    with openai_of(client) as found:
        yield found


@pytest.fixture(scope="module")
def model(settings: Settings) -> str:
    return model_name(settings.model)


def test_a_chat_is_that_of_the_torch_engine(openai: OpenAI, model: str, theirs: RagPipeline) -> None:
    asked: Any = {"model": model, "messages": QUESTION, "max_tokens": 12, "temperature": 0}
    whole = openai.chat.completions.create(**asked)
    assert whole.choices[0].message.content == theirs.chat_completion(QUESTION, max_tokens=12).text
    chunks = list(openai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_collection_answers_with_citations(openai: OpenAI, model: str, theirs: RagPipeline) -> None:
    found = openai.chat.completions.create(model=f"{model}@default", messages=QUESTION, temperature=0)  # type: ignore[arg-type]
    (about,) = found.model_extra["ragcache"]  # type: ignore[index]
    expected = theirs.ask(QUESTION[0]["content"])
    assert found.choices[0].message.content == expected.text
    assert [one["chunk_id"] for one in about["citations"]] == [one.chunk_id for one in expected.citations]
    assert about["report"]["reused"] > 0


def test_choices_logprobs_and_stops(openai: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": QUESTION, "max_tokens": 8}
    sampled = {"n": 2, "seed": 5, "temperature": 2, "logprobs": True, "top_logprobs": 3}
    first, again = (openai.chat.completions.create(**asked, **sampled).choices for _ in range(2))
    texts = [one.message.content for one in first]
    assert len(set(texts)) == 2
    assert texts == [one.message.content for one in again]
    for choice in first:
        assert choice.logprobs is not None
        told = choice.logprobs.content or []
        assert 0 < len(told) <= 8
        assert all(len(one.top_logprobs) == 3 and one.logprob <= 0 for one in told)
    text: Any = {"model": model, "prompt": "The keeper", "temperature": 0, "max_tokens": 12}
    whole = openai.completions.create(**text).choices[0].text
    stop = whole[len(whole) // 2 :][:2]
    stopped = openai.completions.create(**text, stop=[stop]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_llama_index_and_curl_ask(client: httpx2.Client, model: str) -> None:
    base = f"{client.base_url}/v1"
    llm = OpenAILike(model=model, api_base=base, api_key="none", is_chat_model=True, max_tokens=4, temperature=0)
    message = ChatMessage(role="user", content="Hello")
    streamed = "".join(one.delta or "" for one in llm.stream_chat([message]))
    assert streamed == llm.chat([message]).message.content
    body = json.dumps({"model": f"{model}@default", "messages": QUESTION, "stream": True, "max_tokens": 3})
    command = ["curl", "-sN", f"{base}/chat/completions", "-H", "Content-Type: application/json", "-d", body]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert found.stdout.endswith("data: [DONE]\n\n")
    assert '"citations":[{' in found.stdout


def test_context_caches_stand_in_any_order(client: httpx2.Client, model: str, theirs: RagPipeline) -> None:
    texts = ["The bakery opens at six in the morning.", "The lighthouse is closed on Mondays and in winter."]
    made = [client.post("/v1/context_caches", json={"texts": [text]}).json()["id"] for text in texts]
    parts: list[dict[str, Any]] = [{"type": "context_cache", "cache_id": one} for one in reversed(made)]
    content = [{"type": "text", "text": "Notes: "}, *parts, {"type": "text", "text": " When?"}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0, "linker": "full"}
    found = client.post("/v1/chat/completions", json=body).json()
    expected = theirs.chat_completion(messages, max_tokens=8, linker="full").text
    assert found["choices"][0]["message"]["content"] == expected
    for _ in range(2):
        linked = client.post("/v1/chat/completions", json=body | {"linker": "naive"}).json()
    assert linked["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    for one in made:
        assert client.delete(f"/v1/context_caches/{one}").json()["deleted"]
        assert client.post("/v1/chat/completions", json=body).status_code == 404


def test_a_conversation_is_answered_and_stored(client: httpx2.Client) -> None:
    made = client.post("/v1/conversations", json={}).json()
    path = f"/v1/conversations/{made['id']}"
    with asked(client, "POST", f"{path}/messages", json={"question": QUESTION[0]["content"]}) as events:
        told = list(events)
    assert told[-1].name == "done"
    assert told[-1].data["answer"]["content"] == text_of(told)
    assert len(client.get(f"{path}/messages").json()["data"]) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_the_engine(
    client: httpx2.Client, service: Service, model: str, stream: bool
) -> None:
    engine: Any = service.pipeline.models.language.engine
    drain(engine)
    before = free_blocks(engine)
    body = {"model": model, "messages": QUESTION, "max_tokens": 1500, "n": 2, "temperature": 2}
    with httpx2.Client(base_url=client.base_url, timeout=PATIENCE_S if stream else 0.5) as leaving:
        if stream:
            with leaving.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
                next(response.iter_lines())
        else:
            with pytest.raises(httpx2.ReadTimeout):
                leaving.post("/v1/chat/completions", json=body)
    wait_until(lambda: engine._ask(lambda: len(engine._deliver)) == 0, PATIENCE_S)
    drain(engine)
    assert free_blocks(engine) == before
    wait_until(lambda: service.turns.running == 0, PATIENCE_S)
