"""Texts over HTTP: chats, completions and responses whose prompts are System, chunks and question of our template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from app import RagPipeline, Settings
from app.models.chat_template import load_tokenizer
from app.prompt import PromptTemplate
from app.wording import Wording
from examples import vllm_client
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.requests import KEY, capture_params, chat_params, link_params
from ragcache.store import open_store
from ragcache.types import Segment, System, VariantKey
from tests.app.filling import fill
from tests.equivalence.vllm.served import Server, serving
from tests.tiny_folder import write_tiny_folder

CHAT, TEXT, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ROLE, QUESTION = "Answer from the passages.", "Who kept the light?"
PASSAGES = (
    "The lighthouse of Port Ferris was built in 1861.\nIts lamp burned oil until the winter of 1923.",
    "Ada Brandt kept the light for thirty years and wrote down every ship that passed.",
    "Meerkats take turns as sentinels: one stands upright while the others dig.",
)
# Single line ends around the passages, where a tokenizer of this kind cuts in any case: a prompt that is tokenised as
# a whole has the ids of its segments. With the blank lines of the default it has others.
APART = Wording(before_passages="Documents:\n", after_chunk="\n")
TOKENS = 10


@dataclass(frozen=True)
class Prompt:
    messages: list[dict[str, str]]
    segments: list[Segment]
    text: str  # as the chat template renders it
    cache: ChunkCache  # the torch engine over the server's folder

    @property
    def ids(self) -> list[int]:
        return [token for segment in self.segments for token in segment.ids]

    def answer(self, linker: str) -> list[int]:
        return list(self.cache.generate(self.segments, max_tokens=TOKENS, linker=linker))


@pytest.fixture(scope="module")
def server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("chat")
    (folder / "model").mkdir()
    model = write_tiny_folder(folder / "model", smollm2, head_dim=32, hidden_size=128)
    with serving(model, folder) as started:
        yield started


@pytest.fixture(scope="module")
def cache(server: Server) -> ChunkCache:
    engine = TorchEngine.from_folder(server.model, torch.float32, torch.device("cpu"))
    return ChunkCache(engine, open_store(server.store, ram_bytes=0, codec="raw"), "naive", keep_missed=False)


def make_prompt(cache: ChunkCache, server: Server, wording: Wording) -> Prompt:
    tokenizer = load_tokenizer(server.model)
    template = PromptTemplate(tokenizer, ROLE, wording)
    chunks = [template.chunk(text) for text in PASSAGES]
    list(cache.ingest(template.system(), chunks))
    order = (2, 0, 1)
    passages = "".join(f"{PASSAGES[place]}{wording.after_chunk}" for place in order)
    asked = f"{wording.before_passages}{passages}{wording.before_question}{QUESTION}"
    messages = [{"role": "system", "content": ROLE}, {"role": "user", "content": asked}]
    segments = [template.system(), *(chunks[place] for place in order), template.question(QUESTION)]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    assert text == tokenizer.decode([token for segment in segments for token in segment.ids])
    return Prompt(messages, segments, text, cache)


@pytest.fixture(scope="module")
def apart(server: Server, cache: ChunkCache) -> Prompt:
    return make_prompt(cache, server, APART)


@pytest.fixture(scope="module")
def usual(server: Server, cache: ChunkCache) -> Prompt:
    return make_prompt(cache, server, Wording())


def chat(server: Server, prompt: Prompt, params: Any) -> dict[str, Any]:
    body = {"messages": prompt.messages, "kv_transfer_params": params, "max_tokens": TOKENS, "return_token_ids": True}
    return server.post(CHAT, **body, ignore_eos=True)


def complete(server: Server, prompt: Prompt, params: Any) -> dict[str, Any]:
    body = {"prompt": prompt.text, "kv_transfer_params": params, "max_tokens": TOKENS, "return_token_ids": True}
    return server.post(TEXT, **body, add_special_tokens=False, ignore_eos=True)


def told(answer: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = answer["kv_transfer_params"][KEY]
    return report


@pytest.mark.parametrize("linker", ["naive", "auto"])
def test_a_chat_with_the_ids_of_its_prompt_is_linked(server: Server, usual: Prompt, linker: str) -> None:
    answer = chat(server, usual, chat_params(usual.segments, linker))
    assert answer["choices"][0]["token_ids"] == usual.answer(linker)
    assert [chunk["computed"] for chunk in told(answer)["chunks"]] == [0, 0, 0]
    assert answer["usage"]["prompt_tokens"] == len(usual.ids)


def test_texts_that_are_tokenised_as_their_segments_are_linked(server: Server, apart: Prompt) -> None:
    params, expected = link_params(apart.segments, "naive"), apart.answer("naive")
    for answer in (chat(server, apart, params), complete(server, apart, params)):
        assert answer["choices"][0]["token_ids"] == expected
        assert (told(answer)["incidents"], told(answer)["computed"]) == ([], 0)


def test_a_question_may_be_as_long_as_the_server_makes_it(server: Server, apart: Prompt) -> None:
    params = link_params(apart.segments, "naive")
    del params[KEY]["segments"][-1]["tokens"]
    answer = chat(server, apart, params)
    assert (told(answer)["incidents"], told(answer)["question_tokens"]) == ([], len(apart.segments[-1]))


def test_texts_that_are_tokenised_otherwise_are_computed_and_the_report_says_so(server: Server, usual: Prompt) -> None:
    params = link_params(usual.segments, "naive")
    for answer in (chat(server, usual, params), complete(server, usual, params)):
        (incident,) = told(answer)["incidents"]
        assert incident.startswith("not linked: segment 0 (system): the sha256 of its ")
        assert answer["choices"][0]["token_ids"] == chat(server, usual, None)["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    "asked",
    [
        "auto",
        {"segments": [{"kind": ["text"], "tokens": 1}]},
        {"segments": [{"kind": "text"}, {"kind": "text"}]},
        {"segments": [{"kind": "text"}], "linker": "cacheblend"},
        {"capture": {"segments": 3, "keys": 3}},
        {"capture": {"segments": [{"kind": "text"}], "keys": [{"system": 1, "context": [2], "chunk": 3}]}},
    ],
)
def test_nonsense_is_answered_plainly(server: Server, usual: Prompt, asked: Any) -> None:
    answer = chat(server, usual, {KEY: asked})
    assert told(answer)["incidents"][0].startswith("not linked: ")
    assert answer["choices"][0]["token_ids"] == chat(server, usual, None)["choices"][0]["token_ids"]


def test_streams_say_the_same(server: Server, usual: Prompt) -> None:
    """vLLM's chunks of a chat or a completion have no place for the report."""
    params, more = chat_params(usual.segments, "auto"), {"max_tokens": TOKENS, "ignore_eos": True}
    whole = server.post(CHAT, messages=usual.messages, kv_transfer_params=params, **more)
    events = server.stream(CHAT, messages=usual.messages, kv_transfer_params=params, **more)
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]
    assert not [event for event in events if "kv_transfer_params" in event]
    linked = {"prompt": usual.ids, "kv_transfer_params": link_params(usual.segments, "auto"), **more}
    texts = [event["choices"][0]["text"] for event in server.stream(TEXT, **linked)]
    assert "".join(texts) == "".join(pieces)


def test_the_stream_of_a_response_ends_with_the_report(server: Server, usual: Prompt) -> None:
    params = chat_params(usual.segments, "naive")
    events = server.stream(RESPONSE, input=usual.messages, kv_transfer_params=params, max_output_tokens=TOKENS)
    report = told(events[-1]["response"])
    assert events[-1]["type"] == "response.completed"
    assert (report["linker"], report["computed"], report["incidents"]) == ("naive", 0, [])


def test_the_example_client(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(
        model=str(server.model), dtype="float32", data_dir=tmp_path, cache_dir=server.store.parent, codec="raw",
        top_k=2, max_tokens=TOKENS,
    )  # fmt: skip
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ["lighthouse.md"], kv=True)  # into the folder that the server reads
    vllm_client.main(f"http://127.0.0.1:{server.port}", str(server.model), QUESTION, settings)
    *_, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"  \d+ tokens reused, \d+ repaired, 0 computed", last)


def test_clients_store_nothing_where_that_is_not_allowed(server: Server, cache: ChunkCache) -> None:
    system = System(tuple(range(20, 50)))
    key = VariantKey(cache.engine.spec.fingerprint, "", (), system.hash)
    _, told = server.answer([system], capture_params([system], [key]), 1)
    assert "captures are off" in told["incidents"][0]
    _, told = server.answer([system], capture_params([system], [key], "an exchange"), 1)
    assert "exchange that is not here" in told["incidents"][0]
    assert cache.store.variants(key.family) == []
