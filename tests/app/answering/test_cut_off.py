"""An answer whose engine ends it before its end."""

from __future__ import annotations

from collections.abc import Iterator

from app.answering import Answer
from app.answering.pieces import Pieces
from app.answering.stream import AnswerStream
from ragcache.engine import TokenStream
from ragcache.report import Report


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
