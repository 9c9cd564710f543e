"""How answers are shown: what was asked for on stdout, how it came about on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from app.answering import Answer, AnswerStream, told
from app.answering.answer import Citation
from app.cli.output import plain

SHORT = 100  # characters of a quote


def show_answer(stream: AnswerStream, report: bool) -> None:
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


def show_citations(citations: Sequence[Citation]) -> None:
    for citation in citations:
        print(f"[{citation.number}] {plain(citation.place)}")
        if citation.quote is not None:
            print(f"    “{plain(shortened(citation.quote.text))}”")


def show_report(answer: Answer, wanted: bool) -> None:
    """What a user should know of an answer is told in any case."""
    if wanted:
        print(told(answer.report), file=sys.stderr)
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1].rstrip()}…"
