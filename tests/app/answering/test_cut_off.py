"""An answer whose engine ends it before its end, and what breaks when all of an answer is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app import RagPipeline
from app.answering import Answer, answerer
from app.answering.pieces import Pieces
from app.answering.stream import CUT_OFF, AnswerStream
from ragcache.engine import TokenStream
from ragcache.report import Report

QUESTION = "Who designed the lighthouse?"


class CutOff(TokenStream):
    """Of an engine that ends, as a server of vLLM's does: nobody here has stopped it."""

    def __init__(self) -> None:
        self.report, self.tokens, self.logprobs = Report("auto", 3, 0, 0), [], []

    def __iter__(self) -> Iterator[int]:
        self.tokens.append(1)
        yield 1
        self.finish_reason = "cancelled"

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def test_an_answer_that_its_engine_cuts_off_is_not_whole() -> None:
    told = list[bool]()

    def finish(text: str, whole: bool) -> Answer:
        told.append(whole)
        return Answer("", text, (), Report("auto", 3, 0, 0))

    stream = AnswerStream(CutOff(), Pieces(lambda ids: "word" * len(ids)), (), finish)
    assert (stream.answer.text, stream.finish_reason, told) == ("word", "cancelled", [False])


class Whole(CutOff):
    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        self.finish_reason = "stop"


def whole() -> AnswerStream:
    answer = Answer("", "word", (), Report("auto", 3, 0, 0))
    return AnswerStream(Whole(), Pieces(lambda ids: "word" * len(ids)), (), lambda text, whole: answer)


def test_what_breaks_behind_an_answer_costs_neither_it_nor_what_else_follows() -> None:
    stream, seen = whole(), list[Answer]()

    def broken(answer: Answer) -> Answer:
        raise LookupError("gone")

    stream.then += [broken, lambda answer: (seen.append(answer), replace(answer, notes=(*answer.notes, "more")))[1]]
    told = "not all was done behind the answer: LookupError: gone"
    assert list(stream) == ["word"]
    assert (stream.answer.text, stream.answer.notes) == ("word", (told, "more"))
    assert [one.notes for one in seen] == [(told,)]


class Strange(Exception):
    """Of a kind that nothing here meets."""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Strange()])
def test_an_interruption_behind_an_answer_leaves_it_whole(error: BaseException) -> None:
    stream, seen = whole(), list[Answer]()

    def interrupted(answer: Answer) -> Answer:
        raise error

    stream.then += [interrupted, lambda answer: (seen.append(answer), answer)[1]]
    with pytest.raises(type(error)):
        list(stream)
    assert seen == [stream.answer]
    assert (stream.answer.text, stream.answer.notes) == ("word", ())


@pytest.mark.parametrize("error", [RuntimeError("no memory"), MemoryError(), LookupError("gone")])
def test_a_conversation_keeps_an_answer_without_the_quotes_that_break(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*args: object) -> None:
        raise error

    monkeypatch.setattr(answerer, "quoted", broken)
    conversation = pipeline.conversation()
    answer = conversation.ask(QUESTION, max_tokens=4)
    assert answer.notes == (CUT_OFF, f"no quotes: {type(error).__name__}: {error}")
    assert answer.citations
    assert {one.quote for one in answer.citations} == {None}
    assert [one.content for one in conversation.messages] == [QUESTION, answer.text]
