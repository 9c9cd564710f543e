"""Lines of a text that would act as marks in the Markdown that it becomes: headings, fences, and rules that make a
heading of what stands above them. A backslash keeps them text, for our splitters and for any reader of Markdown.

Marks of lists, quotes and tables change no section, and stay as they are written.
"""

from __future__ import annotations

import re

from splitter.documents import lines_as_lf

# At the start of a line `splitter.outline` sees these, and parsers of llama-index some more; behind a backslash nobody.
ACTING = re.compile(
    r"""^(?:
    [ \t]*+(\\*+)(?:
    \#++[^\S\n]
    |`{3}|~{3}
    |(?>(?:=[ ]?){1,6})[^=\n]{1,200}+(?:[ ]?=){1,6}[ \t]*+$
    )
    |(?<=[^\n]\n)[ \t]*+(\\*+)(?:={3,}+|-{3,}+)[ \t]*+$
    )""",
    re.MULTILINE | re.VERBOSE,
)
FENCE = re.compile(r"^[ \t]{0,3}+(`{3,}+|~{3,}+)([^\n]*+)$", re.MULTILINE)


def closed(markdown: str) -> str:
    """Markdown whose last fence is closed, for what has another one behind it."""
    fence = ""
    for found in FENCE.finditer(lines_as_lf(markdown)):
        mark, rest = found.groups()
        if not fence:
            fence = "" if "`" in rest else mark
        elif mark.startswith(fence) and _ends(rest):
            fence = ""
    return f"{markdown}\n{fence}" if fence else markdown


def with_paired_fences(text: str) -> str:
    """A text that is no Markdown, without fences that nothing closes: lines below them may be all that follows."""
    fences = list(FENCE.finditer(lines_as_lf(text)))
    longest, are_closed = {"`": "", "~": ""}, list[bool]()
    for mark, rest in (found.groups() for found in reversed(fences)):
        are_closed.append(longest[mark[0]].startswith(mark))
        if _ends(rest):
            longest[mark[0]] = max(longest[mark[0]], mark)
    fence, places = "", list[int]()
    for found, is_closed in zip(fences, reversed(are_closed), strict=True):
        mark, rest = found.groups()
        if fence:
            fence = "" if mark.startswith(fence) and _ends(rest) else fence
        elif "`" not in rest and is_closed:
            fence = mark
        elif "`" not in rest:
            places.append(found.start(1))
    return _with_backslashes(text, places)


def _ends(rest: str) -> bool:
    """Whether a line ends a fence, by what stands behind its mark."""
    return not rest.rstrip(" \t").strip("`~")


def escaped(text: str, is_below: bool = False) -> str:
    """The text without marks; `is_below`: it goes on below another one."""
    above = ".\n" if is_below else ""
    places = [place - len(above) for place, _ in _acting(above + text)]
    return _with_backslashes(text, places)


def behind(label: str, text: str) -> str:
    """The text, on whose first line a label stands."""
    end = f"{lines_as_lf(text)}\n".index("\n")
    return f"{label}{unescaped(text[:end])}{text[end:]}"


def unescaped(text: str) -> str:
    """What was escaped, for where it does not stand as lines of its own."""
    places = [place for place, is_escaped in _acting(text) if is_escaped]
    return "".join(
        text[start:end] for start, end in zip([0, *(at + 1 for at in places)], [*places, len(text)], strict=True)
    )


def _with_backslashes(text: str, places: list[int]) -> str:
    return "\\".join(text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True))


def _acting(text: str) -> list[tuple[int, bool]]:
    """Where marks are, with the backslashes before them, and whether there are any."""
    found = ((match, match.lastindex or 0) for match in ACTING.finditer(lines_as_lf(text)))
    return [(match.start(group), bool(match[group])) for match, group in found]
