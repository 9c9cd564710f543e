"""Texts that were made to take for ever take as long as any other; no pattern can be stopped in its own process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from splitter import make_splitter
from splitter.base import ChunkLimits
from splitter.documents import KINDS
from tests.splitter.words import Words

SIZE = 120_000
FEW = SIZE // 6  # for what is many units, each of which is work
HOSTILE = {
    "a fence that is none": "~" * SIZE + "`",
    "fences": "~~~x\n" * (FEW // 5),
    "fences of all lengths": "".join("~" * (3 + number % 700) + "\n" for number in range(SIZE // 350)),
    "a fence of spaces": "# a\n```\n" + " " * SIZE + "\nx" + "\n" + " y" * 300,
    "blank lines of code": ("\n" + " " * 50) * (SIZE // 51) + "x",
    "a heading of spaces": "# " + " " * SIZE + "\nx",
    "front matter": "---\n" + "a: b\n" * (FEW // 5),
    "front matter of spaces": "---\na" + " " * SIZE + ": b\n" + " " * SIZE,
    "rules": ("a" * 150 + "\n" + "=" * 400 + "x\n") * (SIZE // 550),
    "wiki marks": ("= = = = " + "w " * 80 + "\n") * (SIZE // 170),
    "equals": "= " * (SIZE // 2),
    "a label": "Question" + " " * SIZE + "x",
    "headings that nobody closed": "<h1>" * (SIZE // 4),
    "a heading whose end has no end": "<h1>" * 200 + "</h1" + " " * SIZE,
    "tags that nobody closed": "<pre>" * (SIZE // 5) + "<table " * (SIZE // 7),
    "angles": "<" * SIZE,
    "brackets": "[" * SIZE,
    "labels": "  [x]" + " " * SIZE + "User",
    "quotes": "\"'" * (SIZE // 2),
    "a message of quotes": "{'role': 'user', 'content': '" + "' " * (SIZE // 2),
    "messages": "{'role': " * (SIZE // 9),
    "questions below headings": "# a\nQ: x\nA: y\n" * (FEW // 14),
    "questions far below headings": "# a\n" * (FEW // 8) + "User: x\nBot: y\n" * 4 + "# a\n" * (FEW // 8) + "User: z\n",
    "turns and rules": "User: x\n---\nBot: y\ny\n---\n" * (FEW // 26),
    "turns and fences": "User: x\nBot: y\n```\nz\n```\n" * (FEW // 24),
    "flags": "\U0001f1e9" * FEW,
    "marks": "a" + "\u0301" * FEW,
    "stops": "." * SIZE,
    "stops and spaces": ". " * (FEW // 2),
    "abbreviations": "e.g. Dr. " * (FEW // 9),
    "dots between letters": "a." * (SIZE // 2),
    "one word": "x" * SIZE,
    "spaces": "word " + " " * SIZE + "word",
    "lines": "x" + "\n" * SIZE + "y",
    "lines of a space": "x" + "\n " * (SIZE // 2) + "y",
    "lone returns": "# a\r" * (FEW // 4),
    "separators": "a\u2028" * (FEW // 2),
    "form feeds": "x\f" * (FEW // 8),
    "ideographic stops": "。」" * (SIZE // 2),
    "dandas": "।" * (SIZE // 2) + "x",
    "dandas in numbers": "5।" * (SIZE // 2),
    "dandas that are closed": "।*\"_'" * (FEW // 5) + "।x" * (FEW // 10),
    "a danda and spaces": "a।" + " " * SIZE + "b",
    "row of bars": "|" * SIZE,
    "rows of bars": "|a\n" * (FEW // 3),
    "escapes": "{'role': 'user', 'content': '" + "\\n" * (FEW // 2) + "'},{'role': 'assistant', 'content': 'x'}",
}
SPLIT = "from tests.splitter.test_linear import split_all; split_all()"
LIMIT = 600  # seconds for all. What is not linear takes hours, and the rest a minute, more on a busy machine


def split_all() -> None:
    """As every kind that looks for marks of its own; `prose` and `items` are cut as `markdown` and `table` are."""
    for name, text in HOSTILE.items():
        print(name, flush=True)
        for kind in KINDS:
            if kind not in ("prose", "items"):
                make_splitter("structure", Words(), None, ChunkLimits()).split(text, kind)


@pytest.mark.slow
def test_hostile_texts_are_split_in_linear_time() -> None:
    """What it printed last is what takes for ever."""
    subprocess.run([sys.executable, "-c", SPLIT], check=True, timeout=LIMIT)
