from __future__ import annotations

import pytest

from splitter import make_splitter
from splitter.base import ChunkLimits, Embed
from splitter.documents import KINDS
from tests.splitter.conftest import Words, letters

SENTENCE = "Some words make a sentence of nine tokens. "


def split(
    text: str, kind: str, limits: ChunkLimits, name: str = "structure", embed: Embed | None = letters
) -> list[str]:
    return [text[piece.start : piece.end] for piece in make_splitter(name, Words(), embed, limits).split(text, kind)]


def test_headings_are_the_path_to_where_a_piece_starts() -> None:
    text = f"# A\n{SENTENCE * 3}\n## B\n{SENTENCE * 3}\n### C\n{SENTENCE * 3}\n## D\n{SENTENCE * 3}"
    pieces = make_splitter("structure", Words(), letters, ChunkLimits(10, 40)).split(text, "markdown")
    assert [piece.heading for piece in pieces] == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D")]
    assert [text[piece.start :].split("\n")[0] for piece in pieces] == ["# A", "## B", "### C", "## D"]


@pytest.mark.parametrize("embed", [letters, None])
@pytest.mark.parametrize(
    "whole",
    ["```py\nx = 1\n\n\ny = 2\n\n\nz = 3\n```", "| a | b |\n|---|---|\n| 1. | 2. |\n| 3. | 4. |"],
)
def test_code_and_tables_stay_whole(whole: str, embed: Embed | None) -> None:
    text = f"{SENTENCE * 4}\n\n{whole}\n\n{SENTENCE * 4}"
    assert sum(whole in piece for piece in split(text, "markdown", ChunkLimits(5, 40), embed=embed)) == 1


def test_code_above_the_maximum_breaks_between_lines() -> None:
    lines = [f"line{n} = {n} + {n}" for n in range(30)]
    pieces = split("```\n" + "\n".join(lines) + "\n```", "markdown", ChunkLimits(5, 40))
    assert len(pieces) > 3
    assert [line for piece in pieces for line in piece.split("\n")] == ["```", *lines, "```"]


def test_turns_stay_whole_and_answers_with_their_questions() -> None:
    exchanges = [f"User: What is {n}? Tell me.\nAssistant: It is {n}. I know it.\n" for n in range(12)]
    pieces = split("".join(exchanges), "chat", ChunkLimits(5, 50))
    assert len(pieces) > 3
    assert all(piece.startswith("User:") and piece.endswith("I know it.") for piece in pieces)


def test_a_message_above_the_maximum_breaks_between_its_lines() -> None:
    body = "\\n\\n".join(f"Paragraph {n} has words. {SENTENCE}" for n in range(9))
    text = f"[{{'role': 'user', 'content': 'Why?'}}, {{'content': '{body}', 'role': 'assistant'}}]"
    pieces = split(text, "prose", ChunkLimits(5, 40), embed=None)
    assert len(pieces) > 4
    assert all(piece.startswith("Paragraph") for piece in pieces[3:])
    assert pieces[-1].endswith("'role': 'assistant'}]")


def test_html_that_a_loader_turned_into_markdown() -> None:
    text = f"# A\n{SENTENCE * 3}\n# B\n{SENTENCE * 3}"
    assert split(text, "html", ChunkLimits(10, 40)) == split(text, "markdown", ChunkLimits(10, 40))


def test_a_heading_at_the_end_is_not_lost() -> None:
    assert split(f"{SENTENCE * 3}\n# The end", "markdown", ChunkLimits(2, 30))[-1].endswith("# The end")


@pytest.mark.parametrize("kind", KINDS)
def test_auto_chooses_by_kind(kind: str) -> None:
    text = "".join(f"{chr(97 + n // 3) * 3} {n}, some of it; {'and more ' * (n % 4)}\n" for n in range(40))
    chosen = "fixed" if kind in ("items", "table") else "structure"
    assert split(text, kind, ChunkLimits(5, 40), "auto") == split(text, kind, ChunkLimits(5, 40), chosen)
    assert split(text, "prose", ChunkLimits(5, 40), "fixed") != split(text, "prose", ChunkLimits(5, 40))


def test_rows_are_not_cut() -> None:
    rows = [f"{n},name {n},{n * 7}" for n in range(60)]
    pieces = split("\n".join(rows), "items", ChunkLimits(5, 40), "auto")
    assert [row for piece in pieces for row in piece.split("\n")] == rows
