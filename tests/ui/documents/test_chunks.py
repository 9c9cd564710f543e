"""Chunks over a text: all of it is shown, once, and each chunk tells what it is."""

from __future__ import annotations

import itertools
import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ui.documents.chunks import coloured, described, windows


def chunk(start: int, end: int, **changes: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "tokens": 7, "heading": [], "pages": [], "cached": None} | changes


def shown(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


@given(
    text=some.text(alphabet="ab<>&\"'\n ü中ع", max_size=60),
    cuts=some.lists(some.tuples(some.integers(0, 70), some.integers(0, 70)), max_size=6),
)
def test_the_text_is_whole_whatever_the_spans(text: str, cuts: list[tuple[int, int]]) -> None:
    chunks = [chunk(*sorted(one)) for one in cuts]
    assert shown(coloured(text, chunks, (0, len(text)))) == text


def test_what_is_in_it_is_text() -> None:
    html = coloured("<script>x</script>", [chunk(0, 8, heading=['"><img src=x>'])], (0, 18))
    assert "<script" not in html and "<img" not in html


def test_windows_cover_the_text_and_end_with_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.documents.chunks.WINDOW", 100)
    text, chunks = "x" * 1000, [chunk(start, start + 30) for start in range(0, 990, 30)]
    spans = windows(text, chunks)
    assert [spans[0][0], spans[-1][1]] == [0, 1000]
    assert all(one[1] == two[0] for one, two in itertools.pairwise(spans))
    assert all(end % 30 == 0 for _, end in spans[:-1])
    assert max(end - start for start, end in spans) <= 250
    assert windows("y" * 150, []) == [(0, 150)]
    assert max(end - start for start, end in windows("y" * 5000, [])) <= 200


def test_a_chunk_tells_number_tokens_heading_pages_and_kv() -> None:
    told = described(2, chunk(0, 5, heading=["Setup", "Linux"], pages=[3, 4], cached=True))
    assert told == "Chunk 3 · 7 tokens · Setup › Linux · pages 3–4 · its KV is kept"
    assert "no KV yet" in described(0, chunk(0, 5, cached=False))
    assert described(0, chunk(0, 5)) == "Chunk 1 · 7 tokens"
    assert "rc-cold" in coloured("abcde", [chunk(0, 5, cached=False)], (0, 5))
