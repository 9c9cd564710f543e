"""Whose turn it is in a conversation: a transcript with a label before each turn, or a list of messages as programs
write them. Headings and code of a text go first, unless it is nothing but a conversation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from splitter.documents import front_matter_end
from splitter.outline import CLOSING_FENCE, Region, markdown_marks, with_prose
from splitter.units import Border

# Who asks opens an exchange; who answers stays with the question where there is room.
ASK = "user|human|customer|client|patient|student|interviewer|question|q"
ANSWER = "assistant|ai|bot|chatbot|gpt|model|agent|support|system|expert|doctor|teacher|interviewee|answer|a"
WRITTEN = ("question", "q", "answer", "a")  # as lists of questions name them, and nobody who talks
TIME = r"(?:\[[^\[\]\n]{1,40}+\][ \t]*+)?"  # with parts of a second and a time zone it has 32 characters
LABEL = re.compile(
    rf"^[ \t]*+{TIME}(?:[*_]{{2}}|<\|?|\#{{1,4}}[ ])?"
    rf"(?:(?P<ask>{ASK})|(?P<answer>{ANSWER}))(?:[ \t]\d{{1,3}})?(?:[*_]{{0,2}}:[*_]{{0,2}}(?=\s)|\|?>)",
    re.IGNORECASE | re.MULTILINE,
)
# Any short name, where the document is known to be a conversation.
NAME = re.compile(rf"^[ \t]*+{TIME}(?P<name>[^\W\d_][\w .'’-]{{0,30}}+):(?=\s)", re.MULTILINE)
# {"role": "user", "content": "…"} in JSON or as Python prints it, in either order; behind a backtick it is an example.
MESSAGE = re.compile(r"""(?<!`)(?<!`\[)\[?\s{0,4}\{\s{0,4}["'](?:role|content)["']\s{0,4}:""")
ROLE = re.compile(rf"""["']role["']\s{{0,4}}:\s{{0,4}}["'](?:(?P<ask>{ASK})|(?P<answer>{ANSWER}))["']""", re.IGNORECASE)
SNIFFED = 4  # turns that make a conversation of a document that nobody said was one
PREFACE = 200  # characters at most, beside a title, before the first turn of a text that is nothing but a conversation
FENCE = re.compile(r"[ \t]{0,3}+(?:```|~~~)")
RULE = re.compile(r"\n[ ]{0,3}+(-{3,}+)[ \t]*+\Z")
LINE_ABOVE = re.compile(r"\S[^\S\n]*+\n\Z")
COLON_ABOVE = re.compile(r":[^\S\n]*+\n\Z")
Matches = Sequence[re.Match[str]]


def chat_regions(text: str) -> list[Region]:
    """Of a text that is known to be a conversation, so labels may be any names: its turns, with what stands before the
    first; nothing where there are none.
    """
    end = len(text)
    turns = _messages(text, list(MESSAGE.finditer(text)), end)
    if len(turns) < 2:
        turns = _labelled(list(LABEL.finditer(text)), end) or _named(text)
        if len(turns) < 2:
            return []
    before = [Region(0, turns[0].start, "prose")] if turns[0].start else []
    return before + turns


def text_regions(text: str) -> list[Region]:
    """Of Markdown, with the turns of conversations in each section. Headings within turns are none where the text is
    nothing but a conversation.
    """
    marks = [*markdown_marks(text)]
    open_end = marks.pop() if marks and _is_open(text, marks[-1]) else None
    whole = [mark for mark in marks if mark.form == "whole"]
    messages = _outside(whole, MESSAGE.finditer(text))
    labels = _outside(whole, LABEL.finditer(text))
    labels = labels if len(labels) >= SNIFFED and _is_exchange(labels) else []
    opened = sorted(match.start() for match in (*messages, *labels))
    # A fence that nobody closed may be that of an answer which was cut off.
    if open_end and (not opened or opened[-1] < open_end.start):
        marks.append(open_end)
        whole.append(open_end)
    if not labels and len(messages) < 2:
        return [*with_prose(text, marks, 0, len(text))]
    regions: list[Region] = []
    start = 0
    for heading in (*_headings(text, marks, labels, opened), None):
        end = heading.start if heading else len(text)
        regions += _section(text, start, end, whole, messages, labels)
        if heading:
            regions.append(heading)
            start = heading.end
    return regions


def _is_open(text: str, mark: Region) -> bool:
    """Whether it is a fence that nobody closed."""
    if mark.end < len(text) or not FENCE.match(text, mark.start):
        return False
    last = text.rfind("\n", mark.start) + 1
    return last <= mark.start or not CLOSING_FENCE.match(text, last)


def _outside(whole: Sequence[Region], found: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    starts = [mark.start for mark in whole]

    def is_within(match: re.Match[str]) -> bool:
        place = bisect_right(starts, match.start())
        return place > 0 and match.start() < whole[place - 1].end

    return [match for match in found if not is_within(match)]


def _is_exchange(labels: Matches) -> bool:
    return any(match["ask"] for match in labels) and any(match["answer"] for match in labels)


def _headings(text: str, marks: Iterable[Region], labels: Matches, opened: Sequence[int]) -> list[Region]:
    """Those that are no part of a turn."""
    headings: list[Region] = []
    rules = set()  # that stand below a turn of one line, and so part turns
    for heading in (mark for mark in marks if mark.form == "heading"):
        if bisect_left(opened, heading.start) < bisect_left(opened, heading.end):
            rules.add(_rule(text, heading))
        else:
            headings.append(heading)
    headings = [heading for heading in headings if not _parts_turns(text, heading, rules)]
    if not labels:
        return headings
    first, last = labels[0].start(), labels[-1].start()
    headings = [heading for heading in headings if heading.start < first or not _is_command(text, heading)]
    amid = any(first < heading.start < last for heading in headings)
    if amid and _is_talk(text, headings, labels):
        return [heading for heading in headings if heading.start < first]
    return headings


def _parts_turns(text: str, heading: Region, rules: set[str]) -> bool:
    """Whether it is the last line of a turn with a rule below it."""
    rule = _rule(text, heading)
    return bool(rule) and (rule in rules or (rule == "---" and _is_right_below(text, heading)))


def _is_command(text: str, heading: Region) -> bool:
    """Whether it is a line of an answer, as a shell shows it: right below what announces it."""
    above = max(0, heading.start - PREFACE)
    return text.startswith("# ", heading.start) and COLON_ABOVE.search(text, above, heading.start) is not None


def _is_right_below(text: str, heading: Region) -> bool:
    """Whether it follows a line that is not blank."""
    return LINE_ABOVE.search(text, max(0, heading.start - PREFACE), heading.start) is not None


def _rule(text: str, heading: Region) -> str:
    found = RULE.search(text[heading.start : heading.end])
    return found[1] if found else ""


def _is_date(text: str, title: Region, below: Region) -> bool:
    """Whether it stands below a title to say when that was."""
    return title.level < below.level and any(map(str.isdigit, text[below.start : below.end]))


def _is_talk(text: str, headings: Sequence[Region], labels: Matches) -> bool:
    """Whether a text is nothing but a conversation, so that headings amid it are those of answers: it begins with a
    turn, below titles at most, is no list of questions, and no other heading stands right above a turn.
    """
    first = labels[0].start()
    title = [heading for heading in headings if heading.start < first]
    ends, begins = [front_matter_end(text), *(one.end for one in title)], [*(one.start for one in title), first]
    said = sum(len(text[end:start].strip()) for end, start in zip(ends, begins, strict=True))
    if len(title) > 1 and not (len(title) == 2 and _is_date(text, *title)):
        return False
    if said > (PREFACE if len(title) < 2 else 0):
        return False
    if all((match["ask"] or match["answer"]).lower() in WRITTEN for match in labels):
        return False
    starts = [heading.start for heading in headings]
    for before, label in pairwise(labels):
        place = bisect_left(starts, label.start()) - 1
        if place >= 0 and starts[place] > before.start() and not text[headings[place].end : label.start()].strip():
            return False
    return True


def _section(
    text: str, start: int, end: int, whole: Sequence[Region], messages: Matches, labels: Matches
) -> Iterator[Region]:
    """Below a heading: what stands before the first turn, and the turns."""
    whole = whole[bisect_left(whole, start, key=_start) : bisect_left(whole, end, key=_start)]
    turns = _messages(text, _between(messages, start, end), end)
    if len(turns) < 2:
        turns = _labelled(_between(labels, start, end), end)
    first = turns[0].start if turns else end
    before = bisect_left(whole, first, key=_start)
    yield from with_prose(text, whole[:before], start, first)
    for turn in turns:
        after = bisect_left(whole, turn.end, key=_start)
        yield Region(turn.start, turn.end, "turn", turn.border, whole=tuple(whole[before:after]))
        before = after


def _start(region: Region) -> int:
    return region.start


def _between(found: Matches, start: int, end: int) -> Matches:
    return found[bisect_left(found, start, key=re.Match.start) : bisect_left(found, end, key=re.Match.start)]


def _messages(text: str, found: Matches, last: int) -> list[Region]:
    """Nothing where hardly any message says whose it is; one that was cut off in the middle does not."""
    turns, silent = [], 0
    for match, end in _with_ends(found, last):
        role = ROLE.search(text, match.start(), end)
        silent += role is None
        border = Border.SECTION if "[" in match[0] else _border(role)
        turns.append(Region(match.start(), end, "turn", border))
    return turns if 2 * silent < len(turns) else []


def _labelled(found: Matches, last: int) -> list[Region]:
    """Nothing where nobody asks, or nobody answers."""
    if not _is_exchange(found):
        return []
    return [Region(match.start(), end, "turn", _border(match)) for match, end in _with_ends(found, last)]


def _named(text: str) -> list[Region]:
    names = list(NAME.finditer(text))
    spoken = Counter(match["name"] for match in names)
    # A name that speaks once may be a line with a colon in it.
    names = [match for match in names if spoken[match["name"]] > 1]
    return [Region(match.start(), end, "turn") for match, end in _with_ends(names, len(text))]


def _border(match: re.Match[str] | None) -> Border:
    return Border.PARAGRAPH if match and match["ask"] else Border.SENTENCE


def _with_ends(found: Matches, end: int) -> Iterator[tuple[re.Match[str], int]]:
    yield from ((match, after.start()) for match, after in pairwise(found))
    if found:
        yield found[-1], end
