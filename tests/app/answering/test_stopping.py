"""Answers that end before a text, and what their streams tell of tokens."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from app import RagPipeline
from app.answering.answerer import STOPPED
from app.answering.stream import Usage
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.sampler import Sampler
from ragcache.sampling import Sampling

QUESTION = "Who designed the lighthouse?"
SAID = "The light was designed by Ada Marsh. It was built in 1846, by masons."


@pytest.fixture
def said(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, ...]]:
    """What every answer says, and then goes on for long."""
    tokens = pipeline.answering.template.chunk(SAID + " The end is far." * 40).ids
    begun = dict[int, int]()

    def choose(sampler: Sampler, logits: object) -> int:
        begun[id(sampler)] = place = begun.get(id(sampler), -1) + 1
        return tokens[place]

    monkeypatch.setattr(Sampler, "choose", choose)
    yield tokens


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["."], "The light was designed by Ada Marsh"),
        ([" Marsh. It was"], "The light was designed by Ada"),
        (["built", "Ada Mar"], "The light was designed by"),
        (["nowhere", "asons. "], "The light was designed by Ada Marsh. It was built in 1846, by m"),
        (["The"], ""),
    ],
)
def test_it_ends_before_the_first(
    pipeline: RagPipeline, said: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, stop: list[str], text: str
) -> None:
    finished, made = list[bool](), list[weakref.ref[KVBuffer]]()
    allocate = TorchEngine.buffer

    def buffer(engine: TorchEngine, capacity: int, apart: bool = False) -> KVBuffer:
        made.append(weakref.ref(new := allocate(engine, capacity, apart)))
        return new

    monkeypatch.setattr(TorchEngine, "buffer", buffer)
    monkeypatch.setattr(pipeline.models.cache, "_finish", lambda segments, era, report: finished.append(True))
    stream = pipeline.stream(QUESTION, max_tokens=200, stop=stop)
    assert stream.finish_reason is None
    pieces = list(stream)
    answer = stream.answer
    assert "".join(pieces) == answer.text == text
    assert (stream.finish_reason, answer.notes) == ("stop", ()), "it is whole"
    assert finished == [True]
    assert not text or all(one.quote for one in answer.citations)
    assert answer.report.answer_tokens < 40, "and nothing behind it is computed"
    gc.collect()
    assert [one() for one in made] == [None]


def test_each_piece_tells_its_tokens(pipeline: RagPipeline, said: tuple[int, ...]) -> None:
    decode, shown, taken = pipeline.answering.template.decode, "", list[int]()
    stream = pipeline.stream(QUESTION, max_tokens=200, stop=["Marsh. It was"], sampling=Sampling(logprobs=2))
    for piece in stream:
        shown += piece
        found = stream.take_tokens()
        assert found and all(one.told and one.told.token == one.token and len(one.told.top) == 2 for one in found)
        taken += [one.token for one in found]
        assert decode(taken).startswith(shown)
    taken += [one.token for one in stream.take_tokens()]
    assert tuple(taken) == said[: len(taken)]
    assert (shown, decode(taken[-1:])) == ("The light was designed by Ada", " Marsh"), "its blank begins before"
    assert stream.take_tokens() == []


def test_it_tells_what_it_took(pipeline: RagPipeline) -> None:
    pipeline.ask(QUESTION)
    pipeline.settle()
    stream = pipeline.stream(QUESTION, max_tokens=5)
    assert list(stream)
    report = stream.answer.report
    assert stream.usage == Usage(report.prompt_tokens, 5, report.cached)
    assert 0 < report.cached < report.prompt_tokens
    assert stream.finish_reason == "length"
    taken = stream.take_tokens()
    assert [one.told for one in taken] == [None] * 5


def test_one_that_is_left_was_cancelled(pipeline: RagPipeline) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=1000, stop=["nowhere"])
    next(stream)
    stream.close()
    assert (stream.finish_reason, stream.answer.notes) == ("cancelled", (STOPPED,))


def test_a_conversation_keeps_what_stands_before(pipeline: RagPipeline, said: tuple[int, ...]) -> None:
    conversation = pipeline.conversation()
    answer = conversation.ask(QUESTION, max_tokens=200, stop=[" by"])
    assert answer.text == "The light was designed"
    assert conversation.messages[-1].content == answer.text


def test_the_same_in_a_program_with_an_event_loop(pipeline: RagPipeline, said: tuple[int, ...]) -> None:
    async def read() -> tuple[str, int, int]:
        async with await pipeline.astream(QUESTION, max_tokens=200, stop=[" by"]) as stream:
            text = "".join([piece async for piece in stream])
            assert stream.finish_reason == "stop"
            return text, stream.usage.answer, len(stream.take_tokens())

    text, answered, taken = asyncio.run(read())
    assert text == "The light was designed"
    assert answered == taken + 1, "the stop string's are counted and not shown"
