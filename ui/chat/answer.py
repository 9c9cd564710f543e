"""An answer as HTML: its text, with the source of each sentence behind it, and the sources that it was made from.

A marker is `data-rc="cite"` with `data-rc-value="NUMBER:SOURCE"`: the answer's place in the conversation, and the
source's among its citations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from app.client.amounts import count
from app.client.answers import places
from ui.chat.marked import Mark, rendered_with
from ui.markup import escape

UNSUPPORTED = "No passage found that says this"
UNUSED = "read for the answer; no sentence of it was found to say so"
Values = Mapping[str, Any]


def answered(message: Values, number: int) -> str:
    """`number`: its place in the conversation. An answer under way has no marks yet, and the same HTML else."""
    text, citations = str(message["content"]), list(message.get("citations") or ())
    told = places(citations)
    support = list(_support(message.get("support"), len(text), len(citations)))
    marks = [_mark(*one, number, told) for one in support]
    body = f'<div class="rc-answer" dir="auto">{rendered_with(text, marks)}</div>'
    used = {cited for _, _, cited in support if cited is not None} if support else set(range(len(citations)))
    return f'{body}<div class="rc-below">{_sources(citations, told, number, used)}{_copy(text)}</div>{_told(support)}'


def _support(told: object, length: int, citations: int) -> Iterator[tuple[int, int, int | None]]:
    """Sentences as a server tells them: start, end and source. Whatever is out of order is left out."""
    last = 0
    for one in told if isinstance(told, list) else ():
        start, end, cited = one.get("start"), one.get("end"), one.get("citation")
        if not (isinstance(start, int) and isinstance(end, int) and last <= start < end <= length):
            continue
        last = end
        yield start, end, cited if isinstance(cited, int) and 0 <= cited < citations else None


def _mark(start: int, end: int, cited: int | None, number: int, places: Sequence[str]) -> Mark:
    if cited is None:
        return Mark(start, end, f'<span class="rc-unsupported" title="{UNSUPPORTED}">', "</span>")
    told = escape(f"Source {cited + 1}: {places[cited]}")
    marker = f'<button class="rc-cite" {_cites(number, cited)} title="{told}" aria-label="{told}">{cited + 1}</button>'
    return Mark(start, end, behind=marker)


def _sources(citations: Sequence[Values], told: Sequence[str], number: int, used: set[int]) -> str:
    """Passages that stand at one place of a document share a chip."""
    chips, documents = [], [str(one["source"]) for one in citations]
    for (_, place), group in groupby(range(len(told)), list(zip(documents, told, strict=True)).__getitem__):
        buttons = "".join(_source(number, at, place, at in used) for at in group)
        chips.append(f'<span class="rc-chip" role="listitem"><bdi title="{escape(place)}">{escape(place)}</bdi>')
        chips.append(f"{buttons}</span>")
    return f'<div class="rc-sources" role="list" aria-label="Sources">{"".join(chips)}</div>' if chips else ""


def _source(number: int, at: int, place: str, used: bool) -> str:
    told = escape(f"Source {at + 1}: {place}" + ("" if used else f", {UNUSED}"))
    kind = "rc-source" if used else "rc-source rc-unused"
    return f'<button class="{kind}" {_cites(number, at)} title="{told}" aria-label="{told}">{at + 1}</button>'


def _copy(text: str) -> str:
    """As it was written: with its marks of Markdown."""
    told = "Copy the answer"
    return f'<button class="rc-copy" data-rc-copy="{escape(text)}" title="{told}" aria-label="{told}">Copy</button>'


def _told(support: Sequence[tuple[int, int, int | None]]) -> str:
    """What the marks mean, where there are no pointers to hover with."""
    unsaid = sum(cited is None for _, _, cited in support)
    if not unsaid:
        return ""
    told = "One sentence" if unsaid == 1 else count(unsaid, "sentence")
    return f'<p class="rc-unsaid"><span class="rc-unsupported">{told}</span>: no passage found that says this</p>'


def _cites(number: int, at: int) -> str:
    return f'data-rc="cite" data-rc-value="{number}:{at}"'
