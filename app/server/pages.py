"""Pages of PDF documents: as images, and with boxes to mark a part of the text on them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel

from app.server.callers import Asking
from app.server.documents import document_of
from app.server.service import Serving

router = APIRouter(prefix="/v1/collections/{name}/documents/{document_id}/pages", tags=["pages"])
DPI = 110
PNG = "image/png"
LARGEST = 2**31 - 1
PageNumber = Annotated[int, Path(ge=1, le=LARGEST)]
Offset = Annotated[int, Query(ge=0, le=LARGEST)]


class MarkedBox(BaseModel):
    """`text[start:end]` of the document stands in it; its sides are fractions of the page's, from the top left."""

    start: int
    end: int
    left: float
    top: float
    right: float
    bottom: float


class PageCard(BaseModel):
    """`text[start:end]` of the document is the page's text."""

    number: int
    width: float  # in points, 72 to an inch
    height: float
    start: int
    end: int
    boxes: list[MarkedBox]


@router.get("/{number}", response_class=Response, responses={200: {"content": {PNG: {}}}})
def page(
    name: str,
    document_id: int,
    number: PageNumber,
    service: Serving,
    caller: Asking,
    dpi: Annotated[int, Query(ge=20, le=400)] = DPI,
    if_none_match: Annotated[str, Header(max_length=1000)] = "",
) -> Response:
    """A PNG of the page. A page too large for so many dots per inch comes with fewer."""
    caller.check("read")
    found = document_of(service, caller.collection(service.catalog, name), document_id)
    headers = {"ETag": f'"{found.content_hash}-{number}-{dpi}"', "Cache-Control": "private, no-cache"}
    if headers["ETag"] in if_none_match:
        return Response(status_code=304, headers=headers)
    image = service.pages.image(found, number, dpi)
    return Response(image, media_type=PNG, headers={**headers, "X-Content-Type-Options": "nosniff"})


@router.get("/{number}/boxes")
def boxes(
    name: str,
    document_id: int,
    number: PageNumber,
    service: Serving,
    caller: Asking,
    start: Offset | None = None,
    end: Offset | None = None,
) -> PageCard:
    """Where `text[start:end]` of the document stands on the page: a box in each of its lines. All of the page's text
    where they are left out.
    """
    caller.check("read")
    found = document_of(service, caller.collection(service.catalog, name), document_id)
    told = service.pages.boxes(found, number, start, end)
    marked = [MarkedBox(**vars(one)) for one in told.boxes]
    return PageCard(number=number, width=told.width, height=told.height, start=told.start, end=told.end, boxes=marked)
