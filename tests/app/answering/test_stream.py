"""Streams that are read, left, stopped and cancelled."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from app import RagPipeline, Settings
from app.answering import Answer
from app.answering.answerer import STOPPED, AnswerRequest
from app.answering.stream import BROKEN, CUT_OFF, AnswerStream
from ragcache import keeping
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from retriever import RetrieverError, Vectors

QUESTION = "Who designed the lighthouse?"


@pytest.fixture
def buffers(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[KVBuffer]]]:
    """All prompts whose KV was allocated."""
    made: list[weakref.ref[KVBuffer]] = []
    allocate = TorchEngine.buffer

    def buffer(engine: TorchEngine, capacity: int, apart: bool = False) -> KVBuffer:
        new = allocate(engine, capacity, apart)
        made.append(weakref.ref(new))
        return new

    monkeypatch.setattr(TorchEngine, "buffer", buffer)
    yield made
    gc.collect()
    assert all(one() is None for one in made)


def test_quotes_are_waited_for_too(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures hold on meanwhile, as they do while chunks are found."""
    monkeypatch.setattr(keeping, "HELD_S", 600.0)  # or they go on all the same, on a machine that stands still
    answering, begun, held = pipeline.answering, threading.Event(), list[bool]()
    keeper, embed = pipeline.models.language.keeper, answering.embed
    assert embed is not None

    def task() -> list[str]:
        begun.set()
        return []

    def watched(texts: Sequence[str]) -> Vectors:
        keeper.later(task)
        held.append(not begun.wait(0.2))
        return embed(texts)

    found = pipeline.retrieve(QUESTION)
    pipeline.settle()
    stream = replace(answering, embed=watched).start(AnswerRequest(QUESTION, found, max_tokens=4))
    assert stream.answer.citations[0].quote is not None
    pipeline.settle()
    assert held == [True]
    assert begun.is_set()


def test_waiting_for_captures_loads_no_model(sampled: Settings) -> None:
    with RagPipeline(sampled) as opened:
        opened.settle()
        opened.retrieve(QUESTION)
        assert opened.models.loaded is None


def test_the_pieces_are_the_answer(pipeline: RagPipeline) -> None:
    pipeline.ask(QUESTION)  # what it lacks is captured behind it, and serves the next
    pipeline.settle()
    stream = pipeline.stream(QUESTION)
    pieces = list(stream)
    assert len(pieces) > 3
    assert "".join(pieces) == stream.answer.text == pipeline.ask(QUESTION).text
    assert list(stream) == [], "a stream is read once"


def test_the_sources_are_known_before_the_text(pipeline: RagPipeline) -> None:
    with pipeline.stream(QUESTION) as stream:
        early = [one.chunk_id for one in stream.citations]
        assert all(one.quote is None for one in stream.citations)
        assert early == [one.chunk_id for one in stream.answer.citations]
        assert all(one.quote is not None for one in stream.citations)


def test_closing_early_stops_and_frees(pipeline: RagPipeline, buffers: list[weakref.ref[KVBuffer]]) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=1000)
    first = [next(stream), next(stream)]
    (buffer,) = buffers
    assert buffer() is not None
    stream.close()
    assert buffer() is None
    answer = stream.answer
    assert answer.text == "".join(first)
    assert answer.notes == (STOPPED,)
    assert answer.report.answer_tokens < 10
    assert list(stream) == []
    stream.close()


def test_leaving_the_block_closes(pipeline: RagPipeline, buffers: list[weakref.ref[KVBuffer]]) -> None:
    def leave() -> None:
        with pipeline.stream(QUESTION) as stream:
            next(stream)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        leave()
    assert buffers[0]() is None


def test_a_stream_that_nobody_reads_is_freed(pipeline: RagPipeline, buffers: list[weakref.ref[KVBuffer]]) -> None:
    stream = pipeline.stream(QUESTION)
    del stream
    gc.collect()
    assert buffers[0]() is None


def test_another_thread_stops_it(pipeline: RagPipeline) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=1000)
    begun = threading.Event()
    pieces: list[str] = []

    def read() -> None:
        for piece in stream:
            pieces.append(piece)
            begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    stream.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert len(pieces) < 1000
    assert stream.answer.notes == (STOPPED,)
    assert stream.answer.text == "".join(pieces)


def test_what_is_called_with_the_answer_is_called_once(pipeline: RagPipeline) -> None:
    stream, answers = pipeline.stream(QUESTION), list[Answer]()
    stream.then.append(lambda answer: (answers.append(answer), replace(answer, notes=("told",)))[1])
    next(stream)
    assert answers == []
    assert stream.answer == replace(answers[0], notes=("told",))
    stream.close()
    assert len(answers) == 1


def test_cancelling_stops_the_decoding(pipeline: RagPipeline, buffers: list[weakref.ref[KVBuffer]]) -> None:
    async def cancel() -> AnswerStream:
        stream = await pipeline.astream(QUESTION, max_tokens=1000)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in stream:
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream._stream

    answer = asyncio.run(cancel()).answer  # the loop has waited for the thread
    assert answer.notes == (STOPPED,)
    assert answer.report.answer_tokens < 1000


def test_leaving_an_async_block_closes(pipeline: RagPipeline, buffers: list[weakref.ref[KVBuffer]]) -> None:
    async def leave() -> str:
        async with await pipeline.astream(QUESTION, max_tokens=1000) as stream:
            async for _ in stream:
                break
        return (await stream.answer()).notes[0]

    assert asyncio.run(leave()) == STOPPED


def test_an_answer_stands_without_the_quotes_that_cannot_be_found(pipeline: RagPipeline) -> None:
    def broken(texts: Sequence[str]) -> Vectors:
        raise RetrieverError("the embedder broke")

    found = pipeline.retrieve(QUESTION)
    answering = replace(pipeline.answering, embed=broken)
    answer = answering.start(AnswerRequest(QUESTION, found, max_tokens=4)).answer
    assert answer.text
    assert answer.notes == (CUT_OFF, "no quotes: the embedder broke")
    assert [one.quote for one in answer.citations] == [None] * len(found)


def test_what_breaks_is_no_whole_answer(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked for."""
    stream = pipeline.stream(QUESTION)
    first = next(stream)

    def broken(*args: object) -> None:
        raise ModelError("no memory left")

    monkeypatch.setattr(TorchEngine, "compute", broken)
    with pytest.raises(ModelError, match="no memory left"):
        list(stream)
    assert list(stream) == []
    assert (stream.answer.text, stream.answer.notes) == (first, (STOPPED, BROKEN))


def test_closing_does_not_hold_up_the_event_loop(pipeline: RagPipeline) -> None:
    async def close() -> list[bool]:
        stream = await pipeline.astream(QUESTION, max_tokens=1000)
        generation, turned = stream._stream._generation, threading.Event()
        end, free = generation.close, list[bool]()

        def slow() -> None:
            free.append(turned.wait(20))
            end()

        generation.close = slow  # type: ignore[method-assign]
        asyncio.get_running_loop().call_soon(turned.set)
        await stream.aclose()
        return free

    assert asyncio.run(close()) == [True]


def test_a_stream_that_comes_too_late_is_closed(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller went away while its prompt was computed."""
    gate, begun, closed, close = threading.Event(), threading.Event(), threading.Event(), AnswerStream.close
    stream = pipeline.stream

    def late(question: str) -> AnswerStream:
        begun.set()
        assert gate.wait(60)
        return stream(question)

    def watched(one: AnswerStream) -> None:
        close(one)
        closed.set()

    monkeypatch.setattr(pipeline, "stream", late)
    monkeypatch.setattr(AnswerStream, "close", watched)

    async def leave() -> bool:
        task = asyncio.create_task(pipeline.astream(QUESTION))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        return await asyncio.to_thread(closed.wait, 60)

    assert asyncio.run(leave())


def test_cancelling_behind_a_step_ends_the_answer_too(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is done, and its task has not heard of it yet: nobody takes another one."""
    stepped, closed, step, close = threading.Event(), threading.Event(), AnswerStream.__next__, AnswerStream.close

    def watched(stream: AnswerStream) -> str:
        try:
            return step(stream)
        finally:
            stepped.set()

    def closing(stream: AnswerStream) -> None:
        close(stream)
        closed.set()

    async def cancel() -> AnswerStream:
        stream = await pipeline.astream(QUESTION, max_tokens=1000)
        monkeypatch.setattr(AnswerStream, "__next__", watched)
        monkeypatch.setattr(AnswerStream, "close", closing)
        task = asyncio.create_task(stream.answer())
        await asyncio.sleep(0)
        assert stepped.wait(60)  # and the loop stands still meanwhile
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream._stream

    stream = asyncio.run(cancel())
    assert closed.wait(60)
    assert stream._answer is not None
    assert stream._answer.notes == (STOPPED,)
