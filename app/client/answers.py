"""Questions to a server: the answer as it comes, then what it cites and what of its prompt was reused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from app.captions import place
from app.client.connection import COLLECTIONS, ServerConnection, ServerError, ServerEvent
from app.client.conversations import FollowedAnswer, take
from ragcache.report import ChunkReport, Report

LARGEST = 2**53  # of a number in JSON
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True)
class ServedQuote:
    text: str


@dataclass(frozen=True)
class ServedCitation:
    number: int
    source: str
    heading: Sequence[str]
    pages: Sequence[tuple[int, str]]
    quote: ServedQuote | None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        quote = values["quote"]
        pages = [(int(number), str(label)) for number, label in (quote or values)["pages"]]
        heading = [str(one) for one in values["heading"]]
        read = None if quote is None else ServedQuote(str(quote["text"]))
        return cls(int(values["number"]), str(values["source"]), heading, pages, read)

    def place_among(self, sources: Collection[str]) -> str:
        """For people, beside those of the answer's other citations."""
        return place(self.source, self.heading, self.pages, sources)


def places(citations: Sequence[Mapping[str, Any]]) -> list[str]:
    """For people, of an answer's citations as a server tells them."""
    told = [ServedCitation.of(one) for one in citations]
    sources = {one.source for one in told}
    return [one.place_among(sources) for one in told]


@dataclass(frozen=True)
class ToldAnswer:
    """An answer as a server tells it; `report` is what a line about it needs."""

    question: str
    text: str
    citations: Sequence[ServedCitation]
    report: Report
    notes: Sequence[str]
    values: Mapping[str, Any]  # its citations, report and notes, whole

    @classmethod
    def of(cls, question: str, text: str, values: Mapping[str, Any]) -> Self:
        """Raises one of UNKNOWN, which `ServerConnection.understood` takes up."""
        citations = [ServedCitation.of(one) for one in values["citations"]]
        return cls(question, text, citations, _report(values["report"]), [str(one) for one in values["notes"]], values)

    def to_dict(self) -> dict[str, Any]:
        """As that of an answer of this machine."""
        told = {"citations": self.values["citations"], "support": self.values.get("support") or []}
        told |= {name: self.values[name] for name in ("report", "notes")}
        return {"question": self.question, "answer": self.text, **told}


class ServedStream:
    """Pieces of text, once; `answer` when they have ended. Leaving its `with` goes away from the server."""

    def __init__(
        self,
        connection: ServerConnection,
        question: str,
        method: str,
        *path: str,
        body: Mapping[str, Any],
        stop: Callable[[], object] | None = None,
    ):
        self._connection, self._question, self._stop = connection, question, stop
        self._request = (method, *path)
        self._body = body
        self._open = ExitStack()
        self._texts: list[str] = []
        self._about: dict[str, Any] | None = None
        self._followed = FollowedAnswer()  # where a conversation tells it
        self._whole = False

    def __enter__(self) -> Self:
        self._events = self._open.enter_context(self._connection.events(*self._request, body=self._body))
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[str]:
        """Raises ServerError."""
        for event in self._events:
            with self._connection.understood():
                piece = self._piece(event)
            if piece:
                self._texts.append(piece)
                yield piece
        if not self._whole:
            raise self._connection.unfinished()

    @property
    def answer(self) -> ToldAnswer:
        for _ in self:
            pass
        if self._about is None:
            raise self._connection.unknown()
        with self._connection.understood():
            return ToldAnswer.of(self._question, "".join(self._texts), self._about)

    def stop(self) -> None:
        """The answer ends soon, and is kept as far as it came."""
        if self._stop is not None:
            self._stop()

    def _piece(self, event: ServerEvent) -> str:
        data = event.data
        if "error" in data:
            raise ServerError(f"{self._connection.server.url}: {data['error']['message']}")
        if event.name:
            return self._of_conversation(event)
        self._about = data.get("ragcache", self._about)
        for choice in data["choices"]:
            if choice["finish_reason"] is not None:
                self._whole = True
            return str(choice["delta"].get("content") or "")
        return ""

    def _of_conversation(self, event: ServerEvent) -> str:
        told, before = self._followed, len(self._followed.text)
        take(told, event.name, event.data)
        if told.ended:
            self._whole = True
            said = {"citations": [], "report": None} if told.message is None else told.message
            self._about = {name: said[name] for name in ("citations", "report")}
            self._about |= {"notes": told.notes, "support": said.get("support")}
        return told.text[before:]


def ask(connection: ServerConnection, collection: str, question: str, choices: Mapping[str, Any]) -> ServedStream:
    """Of one question; the server ends it where nobody reads on. Raises ServerError, also for no such collection."""
    card = connection.ask("GET", *COLLECTIONS, collection)
    with connection.understood():
        model = str(card["model"])
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "stream": True, **choices}
    return ServedStream(connection, question, "POST", "v1", "chat", "completions", body=body)


def _report(values: Mapping[str, Any] | None) -> Report:
    if values is None:
        return Report("", 0, 0, 0)
    chunks = [
        ChunkReport("", _count(one["tokens"]), str(one["tier"]), repaired=_count(one["repaired"]), system=one["system"])
        for one in values["chunks"]
    ]
    return Report("", 0, 0, 0, chunks=chunks, ttft_s=float(values["ttft_s"]))


def is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < LARGEST


def number(text: str, most: int = LARGEST_ID) -> int | None:
    """Told in digits, such as an id in an address; None where it is none, or more. Python itself takes digits of all
    scripts, and raises for thousands of them.
    """
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    return int(text) if digits and int(text) <= most else None


def _count(value: Any) -> int:
    if not is_count(value):
        raise ValueError
    return int(value)
