"""Conversations: transcripts with a label before each turn, and lists of messages as programs write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from splitter.outline import Region
from splitter.units import Border

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
