"""EPIC's three verbs: caches stand in messages in any order and number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from app import RagPipeline
from app.chat.chat import ChatOptions
from app.chat.messages import turns_of
from app.errors import NotFound
from ragcache.errors import PromptError
from ragcache.sampling import Sampling

TEXTS = ("The tower was built in 1846, of granite.", "Three keepers lived there.", "Rye bread takes three days.")
GREEDY = Sampling()


@pytest.fixture
def caches(pipeline: RagPipeline) -> Iterator[list[str]]:
    made = [pipeline.generate_context_cache([text]) for text in TEXTS]
    yield made
    for one in made:
        pipeline.expire_cache(one)
    pipeline.settle()


def user(*parts: str) -> dict[str, Any]:
    """A message in which ids of caches stand for them."""
    told = [
        {"type": "context_cache", "cache_id": one} if one[:3] == "cc-" else {"type": "text", "text": one}
        for one in parts
    ]
    return {"role": "user", "content": told}


def shapes(caches: list[str]) -> list[list[dict[str, Any]]]:
    one, two, three = caches
    system = {"role": "system", "content": "Be brief."}
    said = {"role": "assistant", "content": "In 1846."}
    return [
        [user(one, "When?")],
        [user("Read this. ", one, "\nWhen?")],
        [system, user(two, one, three, "When?")],
        [system, user(one, " and ", one, " When?"), said, user(three, "How long?")],
        [{"role": "system", "content": [{"type": "context_cache", "cache_id": one}]}, user("When?")],
        [user("When?", two, one)],
    ]


@pytest.mark.parametrize("place", range(6))
def test_without_reuse_it_is_the_prompt_without_a_cache(pipeline: RagPipeline, caches: list[str], place: int) -> None:
    messages = shapes(caches)[place]
    segments = pipeline.chat.renderer.segments(turns_of(messages), pipeline.contexts.segments)
    ids = tuple(chain.from_iterable(segment.ids for segment in segments))
    plain = pipeline.chat.complete(ids, ChatOptions(max_tokens=12, sampling=GREEDY)).answer
    told = pipeline.chat_completion(messages, max_tokens=12, sampling=GREEDY, linker="full")
    assert told.text == plain.text.strip()
    assert told.report.prompt_tokens == plain.report.prompt_tokens == len(ids)
    assert len(told.text) > 3


def test_caches_are_reused_wherever_they_stand(pipeline: RagPipeline, caches: list[str]) -> None:
    for messages, uses in zip(shapes(caches)[2:4], (3, 3), strict=True):
        report = pipeline.chat_completion(messages, max_tokens=4, sampling=GREEDY, linker="naive").report
        assert [chunk.tier != "computed" or chunk.passed for chunk in report.chunks] == [True] * uses


def test_one_that_is_gone_is_told(pipeline: RagPipeline, caches: list[str]) -> None:
    gone = pipeline.generate_context_cache(["What goes."])
    assert pipeline.chat_completion([user(gone, "What?")], max_tokens=2, sampling=GREEDY).report.chunks
    pipeline.expire_cache(gone)
    for cache_id in (gone, "cc-" + "0" * 32, "nope"):
        with pytest.raises(NotFound, match="never was, has expired"):
            pipeline.chat_completion([{"role": "user", "content": [{"type": "context_cache", "cache_id": cache_id}]}])
    with pytest.raises(NotFound):
        pipeline.expire_cache(gone)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": "user"},
        {"role": "tool", "content": "x"},
        {"role": "user", "content": []},
        {"role": "user", "content": 1},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://evil.example"}}]},
        {"role": "user", "content": [{"type": "context_cache", "cache_id": 7}]},
    ],
)
def test_what_is_no_message_is_told(message: dict[str, Any]) -> None:
    with pytest.raises(PromptError):
        turns_of([message])
