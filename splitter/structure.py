"""Headings, code, tables, examples and turns as their author set them; in prose, where meaning turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from splitter.base import ChunkLimits, Embed, Piece, Splitter, Tokens
from splitter.documents import check_kind
from splitter.outline import Region, code_regions, html_regions, line_regions, markdown_regions
from splitter.ruler import Ruler, fit, overlapped
from splitter.semantic import Aim, spans_of_runs
from splitter.turns import chat_regions, text_regions
from splitter.units import Border, Marked, check_granularity, coarser, prose_units

# A line break in a string that a program wrote.
ESCAPED = re.compile(r"(?:\\r|\\n)+")
MESSAGE_END = re.compile(r"""[\s"',]*["']role["']\s*+:""")
LINE = re.compile(r"\S[^\n]*+")
WORD = re.compile(r"\S")


class StructureSplitter(Splitter):
    """Without an embedding, prose is cut into even runs of sentences that start where paragraphs do.

    `granularity` says what is never cut unless it is above the maximum by itself. A heading goes with what is below it.
    """

    def __init__(self, tokens: Tokens, embed: Embed | None, limits: ChunkLimits, granularity: str = "sentence"):
        self._tokens = tokens
        self._embed = embed
        self._limits = limits
        self._border = check_granularity(granularity)

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        check_kind(kind)
        ruler = Ruler(text, self._tokens)
        regions = outline(ruler.text, kind)
        most = Aim.of(self._limits).most
        marked = coarser(ruler, marked_units(ruler, regions, most), self._border, most)
        spans = fit(ruler, spans_of_runs(ruler, marked, self._limits, self._embed), self._limits)
        headings = _headings_at(regions, [start for start, _ in spans])
        grown = overlapped(ruler, spans, self._limits)
        return [Piece(start, end, heading) for (start, end), heading in zip(grown, headings, strict=True)]


def outline(text: str, kind: str) -> list[Region]:
    """Regions, ascending. Conversations and marks are seen in what comes as prose too."""
    if kind == "code":
        return list(code_regions(text))
    if kind in ("table", "items"):
        return list(line_regions(text))
    if kind == "html":
        regions = list(html_regions(text))
        # A loader may have turned the tags into marks of Markdown.
        return regions if any(region.form != "prose" for region in regions) else list(markdown_regions(text))
    return (kind == "chat" and chat_regions(text)) or text_regions(text)


def marked_units(ruler: Ruler, regions: Iterable[Region], most: int) -> Iterator[Marked]:
    """Units of all regions. A heading begins the first unit below it."""
    heading: Marked | None = None
    for region in regions:
        if region.form == "heading":
            heading = (heading[0] if heading else region.start, region.end, Border.SECTION)
            continue
        before = region.border
        for start, end, border in _units(ruler, region, most):
            if heading:
                start, border, heading = heading[0], Border.SECTION, None
            else:
                border = max(border, before)
            yield start, end, border
            before = Border.SENTENCE
    if heading:
        yield heading


def _units(ruler: Ruler, region: Region, most: int) -> Iterator[Marked]:
    start, end = region.start, region.end
    if not ruler.text[start:end].strip():
        return
    if region.form == "prose":
        yield from prose_units(ruler.text, start, end)
    elif ruler.between(start, end) <= most:
        yield start, end, Border.SENTENCE
    elif region.form == "whole":
        for line in LINE.finditer(ruler.text, start, end):
            yield *line.span(), Border.LINE
    else:
        for whole in region.whole:
            yield from _broken_turn(ruler.text, start, whole.start)
            yield from _units(ruler, whole, most)
            start = whole.end
        yield from _broken_turn(ruler.text, start, end)


def _broken_turn(text: str, start: int, end: int) -> Iterator[Marked]:
    """Sentences of a turn, of which none are blank; the first begins nothing new, and what closes a message stays with
    the last one.
    """
    if not WORD.search(text, start, end):
        return
    held: Marked | None = None
    opening: int | None = None  # where an escaped line begins that nothing stands before
    before = Border.SENTENCE
    for stop, after in (*(found.span() for found in ESCAPED.finditer(text, start, end)), (end, end)):
        for unit in prose_units(text, start, stop):
            if held and MESSAGE_END.match(text, *unit[:2]):
                held = (held[0], unit[1], held[2])
                continue
            if held:
                yield held
            held = (unit[0] if opening is None else opening, unit[1], min(unit[2], before))
            opening, before = None, Border.PARAGRAPH
        if held:
            held = (held[0], held[1] + len(text[held[1] : after].rstrip()), held[2])  # its line's end is its own
        elif opening is None:
            opening = stop
        start, before = after, Border.LINE
    if held:
        yield held
    elif opening is not None:
        yield opening, end, Border.SENTENCE


def _headings_at(regions: Iterable[Region], starts: Sequence[int]) -> list[tuple[str, ...]]:
    """The path of headings above each start; a piece that starts with a heading is below it."""
    headings = [region for region in regions if region.form == "heading"]
    found: list[tuple[str, ...]] = []
    path: list[Region] = []
    place = 0
    for start in starts:
        while place < len(headings) and headings[place].start <= start:
            path = [above for above in path if above.level < headings[place].level] + [headings[place]]
            place += 1
        found.append(tuple(region.title for region in path))
    return found
