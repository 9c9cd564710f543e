"""Documents of other systems are cut as those with \\n are."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from splitter import SPLITTERS, make_splitter
from splitter.base import ChunkLimits
from splitter.documents import lines_as_lf
from tests.splitter.conftest import Words, letters

WORDS = " ".join(f"word{number}" for number in range(30))
DOCUMENTS = {
    "markdown": f"# One #\nIntro. {WORDS}\n\n```py\n# no heading\n\ndef f():\n    pass\n```\nMore {WORDS}.\n\n"
    f"| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo\n---\nEnd {WORDS}.\n\n~~~\n== none ==\n~~~\n\n"
    f"== Wiki ==\n\nLast {WORDS}.\n",
    "prose": f"First line of it.\nSecond {WORDS}.\n\n\nA passage {WORDS}.\n\n- a point\n- another {WORDS}\n\n"
    f"Input: x\nOutput: y\n\nInput: z\nOutput: {WORDS}\n",
    "code": f"import a\n\n\ndef f():\n    return '{WORDS}'\n\n    # {WORDS}\n\nclass B:\n    pass\n",
    "chat": f"User: hello\nAssistant: {WORDS}\n\nUser: and\nAssistant: {WORDS}\nUser: bye\n",
    "items": f"name: a\nnote: {WORDS}\n\nname: b\nnote: {WORDS}\n",
    "html": f"<h1>One</h1>\n<pre>\na\n\n{WORDS}\n</pre>\n<p>{WORDS}\n</p><h2>Two</h2>\n{WORDS}",
}  # fmt: skip
ENDS = ("\r\n", "\r", "\x85", "\u2028", "\u2029")


def cut(name: str, text: str, kind: str, end: str) -> list[tuple[str, tuple[str, ...]]]:
    pieces = make_splitter(name, Words(), letters, ChunkLimits(4, 24)).split(text.replace("\n", end), kind)
    return [(text.replace("\n", end)[piece.start : piece.end].replace(end, "\n"), piece.heading) for piece in pieces]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_ends_of_lines_change_no_piece(name: str, kind: str, end: str) -> None:
    text = DOCUMENTS[kind]
    assert cut(name, text, kind, end) == cut(name, text, kind, "\n")


LINES = st.lists(
    st.sampled_from(["# A", "B", "---", "```", "~~~", "| a |", "== C ==", "Q: x", "A: y", "Dr. Who came. He left.", ""])
).map("\n".join)


@example(text="---\n== C ==\nDr. Who came. He left.\nQ: x\n# A\nQ: x", kind="chat", end="\r\n")
@given(text=LINES, kind=st.sampled_from(sorted(DOCUMENTS)), end=st.sampled_from(ENDS))
def test_ends_of_lines_change_no_piece_of_broken_documents(text: str, kind: str, end: str) -> None:
    assert cut("structure", text, kind, end) == cut("structure", text, kind, "\n")


@given(st.text(alphabet="ab\r\n\x85\u2028\u2029\f\v é"))
def test_offsets_stay(text: str) -> None:
    lines = lines_as_lf(text)
    assert len(lines) == len(text)
    assert lines.split("\n") == [line.rstrip("\r") + " " * line.endswith("\r") for line in _split(text)]


def _split(text: str) -> list[str]:
    r"""At each end of a line; the \r of \r\n stays."""
    lines = [""]
    for place, one in enumerate(text):
        ends = one in "\n\x85\u2028\u2029" or (one == "\r" and text[place + 1 : place + 2] != "\n")
        if ends:
            lines.append("")
        else:
            lines[-1] += one
    return lines
