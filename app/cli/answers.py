"""How answers are shown, of this machine and of servers: what was asked for on stdout, how it came about on stderr."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from app.captions import report_line
from app.cli.output import plain
from ragcache.report import Report

SHORT = 100  # characters of a quote


class ShownQuote(Protocol):
    @property
    def text(self) -> str: ...


class ShownCitation(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def source(self) -> str: ...
    def place_among(self, sources: Collection[str]) -> str: ...
    @property
    def quote(self) -> ShownQuote | None: ...


class ShownAnswer(Protocol):
    @property
    def citations(self) -> Sequence[ShownCitation]: ...
    @property
    def report(self) -> Report: ...
    @property
    def notes(self) -> Sequence[str]: ...


class ShownStream(Protocol):
    """Pieces of text, then the answer."""

    @property
    def answer(self) -> ShownAnswer: ...
    def __iter__(self) -> Iterator[str]: ...
    def stop(self) -> None: ...


def show_answer(stream: ShownStream, report: bool) -> None:
    show_pieces(stream)
    answer = stream.answer
    if answer.citations:
        print()
        show_citations(answer.citations)
    show_report(answer, report)


def show_pieces(pieces: Iterable[str]) -> None:
    """As they come, and a line end behind the last one."""
    try:
        for piece in pieces:
            # A model may write anything, and a terminal obeys some of it.
            print("".join(sign if sign in "\n\t" else plain(sign) for sign in piece), end="", flush=True)
    finally:
        print(flush=True)


def show_citations(citations: Sequence[ShownCitation]) -> None:
    sources = {citation.source for citation in citations}
    for citation in citations:
        print(f"[{citation.number}] {plain(citation.place_among(sources))}")
        if citation.quote is not None:
            print(f"    “{plain(shortened(citation.quote.text))}”")


def show_report(answer: ShownAnswer, wanted: bool) -> None:
    """What a user should know of an answer is told in any case."""
    if wanted:
        print(plain(report_line(answer.report)), file=sys.stderr)
    for note in answer.notes:
        print(f"note: {plain(note)}", file=sys.stderr)


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1].rstrip()}…"
