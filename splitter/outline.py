"""What the marks of a document say of it: its headings, and the regions that should stay whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from splitter.documents import front_matter_end
from splitter.units import Border

# prose breaks between sentences; whole only when it is above the maximum, then between lines; turn likewise, then
# between sentences; heading belongs to what follows.
Form = Literal["prose", "whole", "turn", "heading"]
# Repeats here and in all other patterns that read documents give nothing back (`*+`, `(?>…)`), or are bounded: a text
# that was made to match in a million ways takes as long as any other.
MARKDOWN = re.compile(
    r"""^[ \t]{0,3}+(?:
    (?P<fence>`{3,}+|~{3,}+)[^\n`]*+$
    |(?P<hashes>\#{1,6}+)[ \t]++(?P<atx>\S[^\n]*+)
    |(?P<equals>(?>(?:=[ ]?){1,6}))(?P<wiki>[^=\n]{1,200}+)(?:[ ]?=){1,6}[ \t]*+$
    |(?P<row>\|[^\n]*+(?:\n[ \t]{0,3}\|[^\n]*+)+)
    |(?P<under>[^\s|>*+`~-][^\n]{0,200}+)\n[ ]{0,3}+(?P<line>={3,}+|-{3,}+)[ \t]*+$
    )""",
    re.MULTILINE | re.VERBOSE,
)
CLOSING_FENCE = re.compile(r"^[ \t]{0,3}+(`{3,}+|~{3,}+)[`~]*+[ \t]*+$", re.MULTILINE)
HTML = re.compile(r"<(?:h(?P<rank>[1-6])\b[^<>]{0,1000}+>|(?P<whole>pre|table)\b)", re.IGNORECASE)
CLOSING_TAGS = {rank: re.compile(rf"</h{rank}\s{{0,20}}+>", re.IGNORECASE) for rank in "123456"}
LONGEST_HEADING = 1000  # characters of markup
TAG = re.compile(r"<[^<>]*>")
# What opens an example of a prompt; the same label opens the next one.
EXAMPLE = re.compile(
    r"^(?P<label>Example|Input|Question|Q|Problem|Premise|Sentence|Review|Passage|Text|Prompt)"
    r"[ \t]*+\d{0,4}+[ \t]*+[:.)]",
    re.MULTILINE,
)
PARAGRAPH_END = re.compile(r"\n[^\S\n]*+\n")
WORD = re.compile(r"\S")
TITLE = 200  # characters that are kept of a heading


@dataclass(frozen=True)
class Region:
    """text[start:end], possibly with blank edges."""

    start: int
    end: int
    form: Form
    border: Border = Border.PARAGRAPH  # what stands before it
    level: int = 0  # of a heading, from 1
    title: str = ""  # of a heading
    whole: tuple[Region, ...] = ()  # within a turn: what stays whole where it is cut


def markdown_regions(text: str) -> Iterator[Region]:
    """Front matter, headings of Markdown and of wikis, fenced code, tables; the rest is prose, with its examples."""
    return with_prose(text, markdown_marks(text), 0, len(text))


def markdown_marks(text: str) -> Iterator[Region]:
    """The same without prose."""
    done = front_matter_end(text)
    if done:
        yield Region(0, done, "whole")
    while found := MARKDOWN.search(text, done):
        start, end, region = found.start(), found.end(), None
        if fence := found["fence"]:
            closing = CLOSING_FENCE.finditer(text, end)
            close = next((line.end() for line in closing if line[1].startswith(fence)), len(text))
            region = Region(start, close, "whole")
        elif found["row"]:
            region = Region(start, end, "whole")
        else:
            title, level = _heading(found)
            region = Region(start, end, "heading", Border.SECTION, level, _clean(title))
        yield region
        done = max(region.end, done + 1)


def with_prose(text: str, marks: Iterable[Region], start: int, end: int) -> Iterator[Region]:
    """The marks of text[start:end], with the prose between them."""
    for mark in marks:
        yield from _prose(text, start, mark.start)
        yield mark
        start = mark.end
    yield from _prose(text, start, end)


def html_regions(text: str) -> Iterator[Region]:
    """Headings, and tables and preformatted text that are closed; the rest is prose."""
    done = 0
    lower = text.lower()
    # Looked for once, so that tags that nobody closed cost no search to the end each.
    last = {name: lower.rfind(f"</{name}") for name in ("pre", "table")}
    for found in HTML.finditer(text):
        if found.start() < done:
            continue
        if found["whole"]:
            name = found["whole"].lower()
            if found.start() > last[name] or len(lower) != len(text):
                continue
            close = lower.find(">", lower.find(f"</{name}", found.start()))
            region = Region(found.start(), close + 1 or len(text), "whole")
        else:
            opened = found.end()
            closing = CLOSING_TAGS[found["rank"]].search(text, opened, opened + LONGEST_HEADING)
            if closing is None:
                continue
            title = _clean(TAG.sub(" ", text[opened : closing.start()]))
            region = Region(found.start(), closing.end(), "heading", Border.SECTION, int(found["rank"]), title)
        yield from _prose(text, done, region.start)
        yield region
        done = region.end
    yield from _prose(text, done, len(text))


def code_regions(text: str) -> Iterator[Region]:
    """Blocks between blank lines; one that starts at the margin begins something new."""
    start = 0
    for gap in re.finditer(r"\n(?:[^\S\n]*+\n)+", text):
        yield from _code(text, start, gap.end())
        start = gap.end()
    yield from _code(text, start, len(text))


def line_regions(text: str) -> Iterator[Region]:
    """A table or a list: each line for itself."""
    for line in re.finditer(r"[^\n]+", text):
        yield Region(*line.span(), "turn", Border.LINE)


def _code(text: str, start: int, end: int) -> Iterator[Region]:
    if start < end:
        margin = not text[start].isspace() and text[start] not in ")}]"
        yield Region(start, end, "whole", Border.SECTION if margin else Border.PARAGRAPH)


def _heading(found: re.Match[str]) -> tuple[str, int]:
    if found["hashes"]:
        return found["atx"].rstrip("# \t"), len(found["hashes"])
    if found["equals"]:
        return found["wiki"], found["equals"].count("=")
    return found["under"], 1 if found["line"].startswith("=") else 2


def _clean(title: str) -> str:
    return " ".join(title[: 2 * TITLE].split())[:TITLE]


def _prose(text: str, start: int, end: int) -> Iterator[Region]:
    """Examples where a label opens at least two of them; else all of it as it is. Nothing where it is blank."""
    if not WORD.search(text, start, end):
        return
    first = EXAMPLE.search(text, start, end)
    opened = [found for found in EXAMPLE.finditer(text, start, end) if first and found["label"] == first["label"]]
    if len(opened) < 2:
        opened = []
    ends = [found.start() for found in opened[1:]]
    if opened:
        gap = PARAGRAPH_END.search(text, opened[-1].start(), end)
        ends.append(gap.end() if gap else end)
    done = start
    for found, stop in zip(opened, ends, strict=True):
        if done < found.start():
            yield Region(done, found.start(), "prose")
        yield Region(found.start(), stop, "turn")
        done = stop
    if done < end:
        yield Region(done, end, "prose")
