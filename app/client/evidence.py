"""Where a citation stands: a page of a PDF as a picture, with the passage's boxes on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.client.answers import UNKNOWN
from app.client.connection import ServerConnection, ServerError
from app.client.files import ROUTE

PNG = "image/png"


@dataclass(frozen=True)
class SeenPage:
    """Boxes are left, top, right and bottom, as fractions of the page's sides."""

    number: int
    png: bytes
    boxes: tuple[tuple[float, float, float, float], ...]


def page_of(connection: ServerConnection, collection: str, citation: Mapping[str, Any]) -> SeenPage | None:
    """The first page of the passage; None where the document has no pages to be seen, or is not there any more."""
    quote = citation.get("quote") or citation
    try:
        number, label = quote["pages"][0] if quote["pages"] else (0, "")
        start, end, document = int(quote["start"]), int(quote["end"]), str(int(citation["document_id"]))
    except UNKNOWN:
        raise connection.unknown() from None
    if not number or label != "page":
        return None
    path = (*ROUTE, collection, "documents", document, "pages", str(number))
    try:
        png = connection.data("GET", *path, kind=PNG)
        told = connection.ask("GET", *path, "boxes", query={"start": start, "end": end})
    except ServerError as error:
        if error.answered is None:
            raise
        return None  # another file has its name by now, or it is no PDF
    try:
        sides = ("left", "top", "right", "bottom")
        boxes = tuple(tuple(float(one[side]) for side in sides) for one in told["boxes"])
        return SeenPage(int(number), png, tuple((a, b, c, d) for a, b, c, d in boxes))
    except UNKNOWN:
        raise connection.unknown() from None
