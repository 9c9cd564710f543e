"""A source beside the chat, with the passage that an answer stands on: on its page, in its text, or as rows."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client.answers import places
from app.client.connection import ServerConnection
from app.client.evidence import SeenPage, SeenText, page_of, text_of
from ui.chat.rows import ITEMS, table
from ui.markup import escape

Citation = Mapping[str, Any]
LOST = {
    "gone": "This document has been deleted since. This is what it said then.",
    "changed": "This document has changed since. This is what it said then.",
}


def show_source(
    connection: ServerConnection, collection: str, citations: Sequence[Citation], number: int, at: int
) -> None:
    """The citation `at` (from 0) of the answer `number`; buttons and keys lead to the ones beside it."""
    shown = _shown(connection, collection, citations[at])
    head = _head(citations, number, at)
    body = f'<div class="rc-panel-body" tabindex="0" role="region" aria-label="Passage">{shown}</div>'
    st.html(f'<aside class="rc-panel" aria-label="Source">{head}{body}</aside>')


def _shown(connection: ServerConnection, collection: str, citation: Citation) -> str:
    """A page of a document that has changed is not looked at: its boxes would mark something else."""
    seen = text_of(connection, collection, citation)
    if not isinstance(seen, SeenText):
        return f'<p class="rc-hint">{LOST[seen]}</p>{passage(citation)}'
    if page := page_of(connection, collection, citation):
        return pictured(page)
    return (table(seen) if seen.kind == ITEMS else "") or written(seen)


def written(seen: SeenText) -> str:
    """The passage in its text, what stands around it set back, and the sentence marked."""
    first, last = seen.marked if seen.marked[1] > seen.marked[0] else (seen.start, seen.end)
    before = seen.text[: seen.start]
    if not seen.begins:
        before = f"… {_from_a_line(before)}"
    behind = seen.text[seen.end :] + ("" if seen.ends else " …")
    first, last = max(first, seen.start), min(last, seen.end)
    inside = (seen.text[seen.start : first], seen.text[first:last], seen.text[last : seen.end])
    said = f"{escape(inside[0])}<mark>{escape(inside[1])}</mark>{escape(inside[2])}"
    around = [f'<span class="rc-around">{escape(one)}</span>' for one in (before, behind)]
    return f'<div class="rc-passage" dir="auto">{around[0]}{said}{around[1]}</div>'


def passage(citation: Citation) -> str:
    """Its text as it was cited, with the sentence that is nearest to the answer marked."""
    text, quote = str(citation["text"]), citation.get("quote")
    start, end = 0, 0
    if quote:
        start = max(0, int(quote["start"]) - int(citation["start"]))
        end = max(start, int(quote["end"]) - int(citation["start"]))
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


def _from_a_line(text: str) -> str:
    """Without the beginning, which is amid a word."""
    line = text.find("\n")
    blank = line if 0 <= line < len(text) - 1 else text.find(" ")
    return text[blank + 1 :]


def _box(sides: tuple[float, float, float, float]) -> str:
    left, top, right, bottom = sides
    place = f"left:{left:.2%};top:{top:.2%};width:{right - left:.2%};height:{bottom - top:.2%}"
    return f'<span class="rc-box" style="{place}"></span>'


def _head(citations: Sequence[Citation], number: int, at: int) -> str:
    name, where = _named(citations, at)
    before = _step(number, at - 1, "p", "‹", "Previous source (p)") if at else ""
    behind = _step(number, at + 1, "n", "›", "Next source (n)") if at + 1 < len(citations) else ""
    title = "Close (Esc)"
    close = (
        f'<button class="rc-quiet" data-rc="close" data-rc-key="Escape" title="{title}" aria-label="{title}">✕</button>'
    )
    told = f'<strong dir="auto">{escape(name)}</strong>'
    told += f'<span class="rc-where" dir="auto">{escape(where)}</span>' if where else ""
    steps = f'<span class="rc-panel-steps">{before}<span>{at + 1} of {len(citations)}</span>{behind}{close}</span>'
    return f'<header><div class="rc-panel-name">{told}</div>{steps}</header>'


def _named(citations: Sequence[Citation], at: int) -> tuple[str, str]:
    """The document, and the page or the heading in it."""
    alone = {**citations[at], "heading": (), "pages": (), "quote": None}
    name = places([alone, *citations])[0]
    whole = places(citations)[at]
    return name, whole[len(name) :].removeprefix(", ")


def _step(number: int, at: int, key: str, sign: str, title: str) -> str:
    return (
        f'<button class="rc-quiet" data-rc="cite" data-rc-value="{number}:{at}" data-rc-key="{key}" '
        f'title="{title}" aria-label="{title}">{sign}</button>'
    )
