"""Which texts are the log of a conversation."""

from __future__ import annotations

import re
from itertools import islice

from splitter.lines import lines_as_lf

# Roles, or names behind a time of day or in angle brackets; a bare `Name:` could be any record or definition.
TIME = r"\[?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[,T ]\s*+)?\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?\]?"
ROLES = "user|assistant|system|human|ai|bot|agent|customer|client|operator|interviewer|interviewee"
TURN = re.compile(
    rf"(?:{TIME}\s*+(?:-\s*+)?+(?:<[^>\n]{{1,40}}>|[^\W\d_][^:\n]{{0,39}}:)\s|<[^>\s]{{1,40}}>\s|(?:{ROLES})\s?:\s)",
    re.I,
)
LINE = re.compile(r"\S[^\n]*")
SAMPLE = 200  # lines
HEAD = 1 << 18  # characters that they are looked for in
LEAST_TURNS = 4


def is_chat(text: str) -> bool:
    """Whether at least every third of the first lines opens a turn, the first one included."""
    lines = [found.group() for found in islice(LINE.finditer(lines_as_lf(text[:HEAD])), SAMPLE)]
    turns = sum(TURN.match(line) is not None for line in lines)
    return turns >= LEAST_TURNS and turns * 3 >= len(lines) and TURN.match(lines[0]) is not None
