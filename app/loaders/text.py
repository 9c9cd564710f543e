"""Plain text, Markdown and source code: the text is the file's own, character by character."""

from __future__ import annotations

import re
from itertools import islice

from app.loaders.base import Parsed, SourceFile
from app.loaders.encodings import decode
from splitter.documents import front_matter_end, lines_as_lf

HEADING = re.compile(r"^#{1,6}+[ \t]++(\S.*+)$", re.MULTILINE)
# Of front matter, on one line; not one that goes on below, or is no plain text.
TITLE = re.compile(
    r"""^title:[ \t]++(?:"((?:[^"\\\n]|\\.)++)"|'((?:[^'\n]|'')++)'|([^\s"'>|&*!{\[#][^\n]*+))[ \t]*+(?:\#[^\n]*+)?$""",
    re.MULTILINE,
)
ESCAPED = re.compile(r"\\([\"\\])")
COMMENT = re.compile(r"\s#.*+")
CLOSING = re.compile(r"\s#++\s*+$")
TITLE_WITHIN = 5_000  # characters; a heading that comes later is not the title
# Roles, or names behind a time of day or in angle brackets; a bare `Name:` could be any record or definition.
TIME = r"\[?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[,T ]\s*+)?\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?\]?"
ROLES = "user|assistant|system|human|ai|bot|agent|customer|client|operator|interviewer|interviewee"
TURN = re.compile(
    rf"(?:{TIME}\s*+(?:-\s*+)?+(?:<[^>\n]{{1,40}}>|[^\W\d_][^:\n]{{0,39}}:)\s|<[^>\s]{{1,40}}>\s|(?:{ROLES})\s?:\s)",
    re.I,
)
FILLED = re.compile(r"\S[^\n]*")
SAMPLE = 200  # lines
HEAD = 1 << 18  # characters that they are looked for in
LEAST_TURNS = 4


def load_text(source: SourceFile) -> Parsed:
    text = decode(source)
    return Parsed(text, "chat" if _is_chat(text) else "prose", source.name)


def load_markdown(source: SourceFile) -> Parsed:
    text = decode(source)
    head = lines_as_lf(text[:HEAD])
    front = front_matter_end(head)
    return Parsed(text, "markdown", first_heading(text[front:]) or _title(head[:front]) or source.name)


def load_code(source: SourceFile) -> Parsed:
    return Parsed(decode(source), "code", source.name + source.path.suffix)


def first_heading(markdown: str) -> str:
    found = HEADING.search(lines_as_lf(markdown[:TITLE_WITHIN]))
    return CLOSING.sub("", found[1]).strip() if found else ""


def _title(front_matter: str) -> str:
    found = TITLE.search(front_matter)
    if not found:
        return ""
    double, single, plain = found.groups("")
    return (ESCAPED.sub(r"\1", double) or single.replace("''", "'") or COMMENT.sub("", plain)).strip()


def _is_chat(text: str) -> bool:
    """Whether at least every third of the first lines opens a turn, the first one included."""
    lines = [found.group() for found in islice(FILLED.finditer(lines_as_lf(text[:HEAD])), SAMPLE)]
    turns = sum(TURN.match(line) is not None for line in lines)
    return turns >= LEAST_TURNS and turns * 3 >= len(lines) and TURN.match(lines[0]) is not None
