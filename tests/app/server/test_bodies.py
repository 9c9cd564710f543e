"""Long bodies: they are made on threads, in a turn, and in pieces that hold no other thread up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from openai.types import Completion
from openai.types.chat import ChatCompletion

from app import Settings
from app.server.bodies import RequestBody
from app.server.events import _parts, written
from app.server.openai import completions, embeddings
from app.server.openai.logprobs import TokenNames
from app.server.problems import body_of
from app.server.service import Service
from app.server.web import create_app
from tests.app.server.serving import serving

ASKED = [{"role": "user", "content": "Who designed the lighthouse?"}]
Made = list[tuple[str, str, int]]  # what, on which thread, and how many turns were taken


@pytest.fixture(scope="module")
def service(sampled: Settings) -> Service:
    return Service(sampled)


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx2.Client]:
    with serving(service) as client:
        yield client


@pytest.fixture
def made(service: Service, monkeypatch: pytest.MonkeyPatch) -> Made:
    found: Made = []
    bytes_of, write = service.bytes_of, written

    def note(what: str) -> None:
        found.append((what, threading.current_thread().name, service.turns.running))

    def named(token: int) -> bytes:
        note(f"named {token}")
        return bytes_of(token)

    def noted(value: Any, depth: int) -> bytes:
        note("written")
        return write(value, depth)

    monkeypatch.setattr(service, "bytes_of", named)
    monkeypatch.setattr(completions, "written", noted)
    monkeypatch.setattr(embeddings, "written", noted)
    return found


def check(made: Made, *whats: str) -> None:
    assert {what.split()[0] for what, _, _ in made} == set(whats)
    assert all(thread != "server" and turns == 1 for _, thread, turns in made), made


def test_the_event_loop_makes_no_long_body(client: httpx2.Client, service: Service, made: Made) -> None:
    asked = {"model": service.model, "max_tokens": 4, "n": 2}
    found = client.post("/v1/chat/completions", json={**asked, "messages": ASKED, "logprobs": True, "top_logprobs": 20})
    ChatCompletion.model_validate_json(found.content, strict=True)
    check(made, "named", "written")
    made.clear()
    found = client.post("/v1/completions", json={**asked, "prompt": "The keeper", "logprobs": 20})
    Completion.model_validate_json(found.content, strict=True)
    check(made, "named", "written")
    made.clear()
    found = client.post("/v1/embeddings", json={"model": service.embedder, "input": ["a", "b"]})
    assert len(found.json()["data"]) == 2
    check(made, "written")


def test_no_token_is_named_twice_for_one_request(client: httpx2.Client, service: Service, made: Made) -> None:
    asked = {"model": service.model, "prompt": "The keeper", "max_tokens": 20, "logit_bias": {"500": 100.0}}
    found = client.post("/v1/completions", json={**asked, "logprobs": 2}).json()
    assert len(found["choices"][0]["logprobs"]["tokens"]) > 4
    named = [what for what, _, _ in made if what.startswith("named")]
    assert len(set(named)) == len(named)


def test_nor_does_it_tell_many_tokens_of_a_stream(client: httpx2.Client, service: Service, made: Made) -> None:
    """Such as special ones, which have no text, so they all come with the last piece."""
    template = service.pipeline.answering.template
    (special, *_) = set(template._tokenizer.all_special_ids) - template.stop
    asked = {
        "model": service.model,
        "messages": ASKED,
        "logit_bias": {str(special): 100.0},
        "max_tokens": completions.MANY + 4,
        "logprobs": True,
    }
    found = client.post("/v1/chat/completions", json={**asked, "stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in found.splitlines()[:-2] if line]
    counts = [len(one["choices"][0]["logprobs"]["content"]) for one in events if one["choices"][0]["logprobs"]]
    assert counts == [completions.MANY + 4]
    assert made
    assert all(thread != "server" for _, thread, _ in made), made


VALUES = [
    {},
    {"a": [], "b": {}, "c": None, "d": [1, 2.5, True, "x\u00e9\U0001f600"]},
    {"choices": [{"logprobs": {"content": [{"token": "a", "top": [{"token": "b"}]}, {"token": "c"}]}}]},
    [["a"], "b"],
    "a",
]


@pytest.mark.parametrize("depth", range(7))
@pytest.mark.parametrize("value", VALUES)
def test_what_is_written_in_parts_is_what_is_written_in_one_go(value: Any, depth: int) -> None:
    assert written(value, depth) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_no_part_is_longer_than_what_is_that_deep() -> None:
    value = {"data": [{"embedding": [0.5] * 10}] * 100}
    assert max(map(len, _parts(value, 2))) == len(json.dumps(value["data"][0], separators=(",", ":")))


def test_what_is_no_text_is_written_as_some() -> None:
    assert json.loads(written({"a": ["b\udcff"], "\ud800": 1}, 1)) == {"a": ["b?"], "?": 1}


def test_tokens_that_are_parts_of_a_character_are_named_by_their_bytes() -> None:
    names = TokenNames({1: b"\xf0\x9f", 2: b"\x98\x80", 3: b" a"}.__getitem__)
    assert [names.of(token).text for token in (1, 2, 3)] == ["bytes:\\xf0\\x9f", "bytes:\\x98\\x80", " a"]
    assert bytes([*names.of(1).bytes, *names.of(2).bytes]).decode() == "\U0001f600"


def test_every_body_tells_few_of_its_faults(service: Service) -> None:
    fields = [field for route in create_app(service).routes if isinstance(route, APIRoute) for field in bodies(route)]
    assert len(fields) > 5
    assert [field for field in fields if not issubclass(field, RequestBody)] == []


def bodies(route: APIRoute) -> Iterator[type]:
    for one in route.dependant.body_params:
        yield one.field_info.annotation


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [-1] * 50_000}),
        ("/v1/completions", {"prompt": [[-1]] * 50_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{}] * 50_000}]}),
        ("/v1/chat/completions", {"messages": ASKED, "logit_bias": {str(one): "x" for one in range(50_000)}}),
        ("/v1/embeddings", {"input": [0] * 50_000}),
        ("/v1/context_caches", {"tokens": [[-1] * 50_000]}),
        ("/v1/context_caches", {str(one): 0 for one in range(50_000)}),
    ],
)
def test_a_body_that_is_wrong_all_over_is_not_gone_through(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    counted, errors = [], RequestValidationError.errors

    def counting(self: RequestValidationError) -> Any:
        counted.append(len(found := errors(self)))
        return found

    monkeypatch.setattr(RequestValidationError, "errors", counting)
    refused = client.post(path, json={"model": "m", **body})
    assert refused.status_code == 400
    assert len(refused.content) < 1000
    assert sum(counted) < 10


def test_a_message_is_no_longer_than_can_be_read(client: httpx2.Client) -> None:
    refused = client.post("/v1/chat/completions", json={"model": "m" * 900, "messages": ASKED, "linker": "x" * 200})
    assert refused.status_code == 404 and len(refused.content) < 2500
    assert len(body_of(400, "x" * 10**6)["error"]["message"]) < 2100
