"""From a question to a cited answer.

    from app import RagPipeline, Settings

    with RagPipeline(Settings()) as pipeline:
        pipeline.ingest(["docs"])
        answer = pipeline.ask("Who designed the lighthouse?")
        print(answer.text, answer.citations[0].place)

Importing this brings no model library; the first question does. Here is what is asked, what was retrieved for it, and
what is answered: each citation with the exact place it stands at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from app.answering.question_options import Asked
from app.captions import place
from app.errors import CatalogError
from app.library.catalog import Catalog
from app.library.catalog.records import Box, Found, PageName
from app.loaders.base import Parsed, Place
from ragcache.report import Report

__all__ = ["Asked"]  # from here too
Reason = Literal["hit", "neighbour"]


@dataclass(frozen=True)
class Retrieved:
    """A chunk that a question found, or that stands beside one: `document[start:end] == text`.

    Ids are numbers of the catalog, or names where the chunk is a node of llama-index.
    """

    document_id: int | str
    chunk_id: int | str
    ordinal: int  # its place in its document
    source: str  # the path or URI of the document
    title: str
    pages: tuple[PageName, ...]
    start: int
    end: int
    text: str
    heading: tuple[str, ...]
    boxes: tuple[Box, ...]
    score: float  # of a neighbour: its hit's
    reason: Reason = field(default="hit", kw_only=True)
    standing: float | None = field(default=None, kw_only=True)  # of its document in the order of the collection

    @property
    def place(self) -> str:
        """For people: "report.pdf, pages 3-4", or "guide.md, Setup > Linux" where there are no pages."""
        return self.place_among(())

    def place_among(self, sources: Collection[str]) -> str:
        """The same beside those of an answer's other citations, some of which may have the same file name."""
        return place(self.source, self.heading, self.pages, sources)


@dataclass(frozen=True)
class Quote:
    """The sentence of a chunk that is nearest to the answer: `document[start:end] == text`."""

    start: int
    end: int
    text: str
    pages: tuple[PageName, ...]
    likeness: float  # cosine with question and answer


@dataclass(frozen=True)
class Citation(Retrieved):
    """A chunk that stood in the prompt. `number` counts from 1 in the order of the prompt."""

    number: int
    quote: Quote | None = None

    @classmethod
    def of(cls, number: int, retrieved: Retrieved) -> Self:
        return cls(**vars(retrieved), number=number)

    def place_among(self, sources: Collection[str]) -> str:
        """Of the quote where there is one, since a chunk may stand on several pages."""
        return place(self.source, self.heading, self.quote.pages if self.quote else self.pages, sources)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What to_dict gave, also after a way through JSON."""
        quote = values["quote"]
        tuples = {name: tuple(map(tuple, values[name])) for name in ("pages", "boxes")}
        if quote is not None:
            quote = Quote(**{**quote, "pages": tuple(map(tuple, quote["pages"]))})
        return cls(**{**values, **tuples, "heading": tuple(values["heading"]), "quote": quote})

    def locate(self, catalog: Catalog) -> list[Place]:
        """Where a reader should open the document: the pages of the quote, else of the chunk, with boxes in a PDF.

        A document that was deleted or has another text by now is told by what was known when it was cited.
        """
        start, end, text = self.start, self.end, self.text
        if self.quote is not None:
            start, end, text = self.quote.start, self.quote.end, self.quote.text
        found = locate(catalog, self, start, end, text)
        return _remembered(self) if found is None else found


def retrieved(found: Found, score: float, reason: Reason = "hit") -> Retrieved:
    """A chunk of the catalog."""
    chunk, document = found.chunk, found.document
    return Retrieved(
        document.id,
        chunk.id,
        chunk.ordinal,
        document.source,
        document.title,
        chunk.pages,
        chunk.start,
        chunk.end,
        chunk.text,
        chunk.heading,
        chunk.boxes,
        score,
        reason=reason,
        standing=found.standing,
    )


def locate(catalog: Catalog, cited: Retrieved, start: int, end: int, text: str) -> list[Place] | None:
    """The places of a span of a chunk; None where the document is not there, or no longer says this.

    The chunk itself knows them. Only for one that was replaced, or stored before chunks knew, the document is read.
    """
    if isinstance(cited.document_id, str) or isinstance(cited.chunk_id, str):
        return None
    if (known := catalog.chunks.layout(cited.chunk_id)) is not None:
        chunk, layout = known
        own = slice(start - chunk.start, end - chunk.start)
        if chunk.document_id == cited.document_id and start >= chunk.start and chunk.text[own] == text:
            return Parsed("", "", "", layout.pages, layout.lines).locate(start, end)
    try:
        layout = catalog.documents.layout(cited.document_id)
    except CatalogError:
        return None
    if layout.text[start:end] != text:
        return None
    return Parsed(layout.text, "", "", layout.pages, layout.lines).locate(start, end)


def _remembered(citation: Citation) -> list[Place]:
    pages = citation.quote.pages if citation.quote else citation.pages
    boxes = [(page, (x0, y0, x1, y1)) for page, x0, y0, x1, y1 in citation.boxes]
    return [Place(number, label, tuple(box for page, box in boxes if page == number)) for number, label in pages]


@dataclass(frozen=True)
class SupportedSentence:
    """`content[start:end]`, in characters, is a sentence of an answer that claims something. `citation`: the place,
    from 0, of the citation that supports it, or null; `share`: how much of it that one says, 0 to 1.
    """

    start: int
    end: int
    citation: int | None
    share: float  # also where it is too little


@dataclass(frozen=True)
class Answer:
    """`notes` say what a user should know of it: what was left out of the prompt, or that it was stopped. `support` is
    there when it has ended.
    """

    question: str
    text: str
    citations: tuple[Citation, ...]
    report: Report
    notes: tuple[str, ...] = ()
    support: tuple[SupportedSentence, ...] = ()

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "question": self.question,
            "answer": self.text,
            "citations": [citation.to_dict() for citation in self.citations],
            "support": [asdict(one) for one in self.support],
            "report": self.report.to_dict(),
            "notes": list(self.notes),
        }
