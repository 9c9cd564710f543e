"""A source beside the chat, with the passage that an answer stands on."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client.answers import ServedCitation
from app.client.connection import ServerConnection
from app.client.evidence import SeenPage, page_of
from ui.markup import escape

Citation = Mapping[str, Any]


def show_source(
    connection: ServerConnection, collection: str, citations: Sequence[Citation], number: int, at: int
) -> None:
    """The citation `at` (from 0) of the answer `number`; buttons and keys lead to the ones beside it."""
    citation = citations[at]
    page = page_of(connection, collection, citation)
    shown = pictured(page) if page is not None else passage(citation)
    st.html(f'<aside class="rc-panel" aria-label="Source">{_head(citations, number, at)}{shown}</aside>')


def passage(citation: Citation) -> str:
    """Its text as HTML, with the sentence that is nearest to the answer marked."""
    text, quote = str(citation["text"]), citation.get("quote")
    start, end = 0, 0
    if quote:
        start = max(0, int(quote["start"]) - int(citation["start"]))
        end = max(start, int(quote["end"]) - int(citation["start"]))
        if text[start:end] != str(quote["text"]):  # a table's chunk has its header in front
            start = text.find(str(quote["text"]))
            start, end = (start, start + len(str(quote["text"]))) if start >= 0 else (0, 0)
    marked = f"<mark>{escape(text[start:end])}</mark>" if end > start else ""
    return f'<div class="rc-passage" dir="auto">{escape(text[:start])}{marked}{escape(text[end:])}</div>'


def pictured(page: SeenPage) -> str:
    """The page, with the passage's lines marked on it."""
    boxes = "".join(map(_box, page.boxes))
    data = base64.b64encode(page.png).decode()
    return (
        f'<div class="rc-page"><img alt="Page {page.number}, with the passage marked" '
        f'src="data:image/png;base64,{data}">{boxes}</div>'
    )


def _box(sides: tuple[float, float, float, float]) -> str:
    left, top, right, bottom = sides
    place = f"left:{left:.2%};top:{top:.2%};width:{right - left:.2%};height:{bottom - top:.2%}"
    return f'<span class="rc-box" style="{place}"></span>'


def _head(citations: Sequence[Citation], number: int, at: int) -> str:
    place = ServedCitation.of(citations[at]).place
    before = _step(number, at - 1, "p", "‹", "Previous source (p)") if at else ""
    behind = _step(number, at + 1, "n", "›", "Next source (n)") if at + 1 < len(citations) else ""
    close = '<button class="rc-quiet" data-rc="close" data-rc-key="Escape" title="Close (Esc)">✕</button>'
    return (
        f'<header><strong dir="auto">{escape(place)}</strong><span class="rc-panel-steps">{before}'
        f"<span>{at + 1} of {len(citations)}</span>{behind}{close}</span></header>"
    )


def _step(number: int, at: int, key: str, sign: str, title: str) -> str:
    return (
        f'<button class="rc-quiet" data-rc="cite" data-rc-value="{number}:{at}" data-rc-key="{key}" '
        f'title="{title}" aria-label="{title}">{sign}</button>'
    )
