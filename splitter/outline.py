"""What the marks of a document say of it: its headings, the regions that should stay whole, and whose turn it is in a
conversation (a transcript with a label before each turn, or a list of messages as programs write them).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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
# Who asks opens an exchange; who answers stays with the question where there is room.
ASK = "user|human|customer|client|patient|student|interviewer|question|q"
ANSWER = "assistant|ai|bot|chatbot|gpt|model|agent|support|system|expert|doctor|teacher|interviewee|answer|a"
TIME = r"(?:\[[^\[\]\n]{1,40}+\][ \t]*+)?"  # with parts of a second and a time zone it has 32 characters
LABEL = re.compile(
    rf"^[ \t]*+{TIME}(?:[*_]{{2}}|<\|?|\#{{1,4}}[ ])?"
    rf"(?:(?P<ask>{ASK})|(?P<answer>{ANSWER}))(?:[ \t]\d{{1,3}})?(?:[*_]{{0,2}}:[*_]{{0,2}}(?=\s)|\|?>)",
    re.IGNORECASE | re.MULTILINE,
)
# Any short name, where the document is known to be a conversation.
NAME = re.compile(rf"^[ \t]*+{TIME}(?P<name>[^\W\d_][\w .'’-]{{0,30}}+):(?=\s)", re.MULTILINE)
# {"role": "user", "content": "…"} in JSON or as Python prints it, in either order.
MESSAGE = re.compile(r"""\[?\s{0,4}\{\s{0,4}["'](?:role|content)["']\s{0,4}:""")
ROLE = re.compile(rf"""["']role["']\s{{0,4}}:\s{{0,4}}["'](?:(?P<ask>{ASK})|(?P<answer>{ANSWER}))["']""", re.IGNORECASE)
SNIFFED = 4  # turns that make a conversation of a document that nobody said was one


@dataclass(frozen=True)
class Region:
    """text[start:end], possibly with blank edges."""

    start: int
    end: int
    form: Form
    border: Border = Border.PARAGRAPH  # what stands before it
    level: int = 0  # of a heading, from 1
    title: str = ""  # of a heading


def markdown_regions(text: str) -> Iterator[Region]:
    """Front matter, headings of Markdown and of wikis, fenced code, tables; the rest is prose, with its examples."""
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
        yield from _prose(text, done, start)
        yield region
        done = max(region.end, done + 1)
    yield from _prose(text, done, len(text))


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


def turn_regions(text: str, sure: bool) -> list[Region]:
    """Its turns, with what stands before the first; nothing where it is no conversation.

    `sure`: somebody said that it is one, so that labels may be any names.
    """
    regions = _messages(text)
    if len(regions) < 2:
        regions = _labelled(text, sure)
        if len(regions) < (2 if sure else SNIFFED):
            return []
    before = [Region(0, regions[0].start, "prose")] if regions[0].start else []
    return before + regions


def _messages(text: str) -> list[Region]:
    """Nothing where hardly any message says whose it is; one that was cut off in the middle does not."""
    regions, silent = [], 0
    for found, end in _with_ends(list(MESSAGE.finditer(text)), len(text)):
        role = ROLE.search(text, found.start(), end)
        silent += role is None
        border = Border.SECTION if "[" in found[0] else _border(role)
        regions.append(Region(found.start(), end, "turn", border))
    return regions if 2 * silent < len(regions) else []


def _labelled(text: str, sure: bool) -> list[Region]:
    found = list(LABEL.finditer(text))
    if any(match["ask"] for match in found) and any(match["answer"] for match in found):
        return [Region(match.start(), end, "turn", _border(match)) for match, end in _with_ends(found, len(text))]
    if not sure:
        return []
    names = list(NAME.finditer(text))
    spoken = Counter(match["name"] for match in names)
    # A name that speaks once may be a line with a colon in it.
    names = [match for match in names if spoken[match["name"]] > 1]
    return [Region(match.start(), end, "turn") for match, end in _with_ends(names, len(text))]


def _border(match: re.Match[str] | None) -> Border:
    return Border.PARAGRAPH if match and match["ask"] else Border.SENTENCE


def _with_ends(found: list[re.Match[str]], end: int) -> Iterator[tuple[re.Match[str], int]]:
    yield from ((match, after.start()) for match, after in pairwise(found))
    if found:
        yield found[-1], end
