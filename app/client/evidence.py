"""Where a citation stands: a page of a PDF as a picture, with the passage's boxes on it, or the text around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.client.connection import COLLECTIONS, ServerConnection, ServerError

PNG = "image/png"
BEFORE, BEHIND = 600, 1800  # characters around a passage
LONGEST = 60_000  # characters of a passage
MISSING = 404
Lost = Literal["gone", "changed"]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class SeenPage:
    """Boxes are left, top, right and bottom, as fractions of the page's sides."""

    number: int
    png: bytes
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class SeenText:
    """A part of a document: `text[start:end]` is the passage, `text[marked[0]:marked[1]]` the sentence of it that is
    nearest to the answer. Of `kind` "items" each row of a table is lines of `column: value`.
    """

    text: str
    start: int
    end: int
    marked: tuple[int, int]
    kind: str
    begins: bool  # whether the document does so here
    ends: bool


def page_of(connection: ServerConnection, collection: str, citation: Mapping[str, Any]) -> SeenPage | None:
    """The first page of the passage; None where the document has no pages to be seen, or is not there any more."""
    quote = citation.get("quote") or citation
    with connection.understood():
        number, label = quote["pages"][0] if quote["pages"] else (0, "")
        start, end, document = int(quote["start"]), int(quote["end"]), str(int(citation["document_id"]))
    if not number or label != "page":
        return None
    path = (*COLLECTIONS, collection, "documents", document, "pages", str(number))
    try:
        png = connection.data("GET", *path, kind=PNG)
        told = connection.ask("GET", *path, "boxes", query={"start": start, "end": end})
    except ServerError as error:
        if error.answered is None:
            raise
        return None  # another file has its name by now, or it is no PDF
    with connection.understood():
        sides = ("left", "top", "right", "bottom")
        boxes = tuple(tuple(float(one[side]) for side in sides) for one in told["boxes"])
        return SeenPage(int(number), png, tuple((a, b, c, d) for a, b, c, d in boxes))


def text_of(connection: ServerConnection, collection: str, citation: Mapping[str, Any]) -> SeenText | Lost:
    """No more of the document than stands around the passage. `changed`: it does not say there what was cited."""
    with connection.understood():
        start, document, cited = int(citation["start"]), str(int(citation["document_id"])), str(citation["text"])
        quote = citation.get("quote") or {"start": start, "end": start, "text": ""}
        marked, quoted = (int(quote["start"]), int(quote["end"])), str(quote["text"])
    end = start + min(len(cited), LONGEST)
    first = max(0, start - BEFORE)
    query = {"start": first, "end": end + BEHIND}
    try:
        told = connection.ask("GET", *COLLECTIONS, collection, "documents", document, query=query)
    except ServerError as error:
        if error.answered != MISSING:
            raise
        return "gone"
    with connection.understood():
        text, length, kind = str(told["text"]), int(told["length"]), str(told["kind"])
    own = (marked[0] - first, marked[1] - first)
    if text[start - first : end - first] != cited[:LONGEST] or text[slice(*own)] != quoted or own[0] < 0:
        return "changed"
    return SeenText(text, start - first, end - first, own, kind, first == 0, first + len(text) >= length)
