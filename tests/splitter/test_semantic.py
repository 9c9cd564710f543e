from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import splitter.semantic
from splitter import SplitterError, make_splitter
from splitter.base import ChunkLimits, Vectors
from splitter.semantic import SemanticSplitter
from tests.splitter.conftest import Words, letters

TOPICS = [" ".join(f"{word} {word} {word} {word}." for _ in range(4)) for word in ("apples", "boats", "clocks", "dogs")]


def split(text: str, limits: ChunkLimits, granularity: str = "sentence") -> list[str]:
    splitter = SemanticSplitter(Words(), letters, limits, granularity)
    return [text[piece.start : piece.end] for piece in splitter.split(text)]


def test_pieces_end_where_meaning_turns() -> None:
    assert split(" ".join(TOPICS), ChunkLimits(5, 35)) == TOPICS


def test_paragraphs_are_cut_only_where_they_must_be() -> None:
    text = f"{TOPICS[0]} {TOPICS[1]}\n\n{TOPICS[2]} {TOPICS[3]}"
    assert split(text, ChunkLimits(5, 60), "paragraph") == text.split("\n\n")
    assert split(text, ChunkLimits(5, 30), "paragraph") == TOPICS


def test_texts_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter.semantic, "BLOCK", 8)
    asked: list[int] = []

    def counted(texts: Sequence[str]) -> Vectors:
        asked.append(len(texts))
        return letters(texts)

    text = "\n\n".join(TOPICS * 3)
    pieces = make_splitter("semantic", Words(), counted, ChunkLimits(5, 35)).split(text)
    assert [text[piece.start : piece.end] for piece in pieces] == TOPICS * 3
    assert max(asked) <= 8
    assert sum(asked) == 48


def test_an_embedding_is_needed() -> None:
    with pytest.raises(SplitterError, match="needs an embedding"):
        make_splitter("semantic", Words())


@pytest.mark.parametrize("vectors", [np.ones((1, 4)), np.ones(16), np.full((16, 4), np.nan)])
def test_a_wrong_embedding_is_told(vectors: Vectors) -> None:
    with pytest.raises(SplitterError, match="should give one vector for each text"):
        make_splitter("semantic", Words(), lambda texts: vectors, ChunkLimits(5, 35)).split(" ".join(TOPICS))
