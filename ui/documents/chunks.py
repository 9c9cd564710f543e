"""A document's text with the chunks over it, as the splitter cut them: how KVSplit works is seen here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.client.amounts import count
from ui.markup import escape

WINDOW = 40_000  # characters that are shown at once, and the rest of the last chunk
HUES = 4
Chunk = Mapping[str, Any]


def windows(text: str, chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Spans of the text, none of which ends within a chunk."""
    ends = sorted({int(one["end"]) for one in chunks if 0 < one["end"] < len(text)})
    found, start = [], 0
    for end in ends:
        if end - start >= WINDOW:
            found.append((start, end))
            start = end
    while len(text) - start > 2 * WINDOW:  # a text that nothing was cut of
        found.append((start, start + WINDOW))
        start += WINDOW
    return [*found, (start, len(text))]


def coloured(text: str, chunks: Sequence[Chunk], window: tuple[int, int]) -> str:
    """As HTML. What is in no chunk has no colour; where chunks overlap, the first one's counts."""
    return f'<div class="rc-text" dir="auto" data-rc-walk>{"".join(_pieces(text, chunks, window))}</div>'


def _pieces(text: str, chunks: Sequence[Chunk], window: tuple[int, int]) -> Iterator[str]:
    at, stop = window
    tab = 0  # the first one is a stop of the Tab key, and the arrow keys lead on
    for number, chunk in enumerate(chunks):
        start, end = max(at, int(chunk["start"])), min(stop, int(chunk["end"]))
        if end <= start:
            continue
        yield escape(text[at:start])
        cold = " rc-cold" if chunk.get("cached") is False else ""
        about = escape(described(number, chunk))
        yield (
            f'<span class="rc-chunk rc-hue-{number % HUES}{cold}" data-n="{number + 1}" tabindex="{tab}" '
            f'title="{about}">{escape(text[start:end])}</span>'
        )
        at, tab = end, -1
    yield escape(text[at:stop])


def described(number: int, chunk: Chunk) -> str:
    """For whoever points at it."""
    parts = [f"Chunk {number + 1}", count(int(chunk["tokens"]), "token")]
    if heading := " › ".join(str(one) for one in chunk.get("heading", ())):
        parts.append(heading)
    if pages := [str(one) for one in chunk.get("pages", ())]:
        parts.append(f"page {pages[0]}" if len(pages) == 1 else f"pages {pages[0]}–{pages[-1]}")
    if (cached := chunk.get("cached")) is not None:
        parts.append("its KV is kept" if cached else "no KV yet: an answer that needs it computes it")
    return " · ".join(parts)
