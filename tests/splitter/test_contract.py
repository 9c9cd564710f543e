"""What every splitter promises, on texts that nobody would write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from splitter import SPLITTERS, SplitterError, make_splitter
from splitter.base import ChunkLimits, FastTokens, Offsets, Piece, Tokens
from splitter.documents import KINDS
from tests.splitter.conftest import Words, letters

HOSTILE = st.text(alphabet=st.characters(exclude_categories=()), max_size=400)
# Marks of all kinds, so that outlines are met in every broken state.
MARKS = (
    "# Head\n", "== Wiki ==\n", "Under\n====\n", "```\n", "~~~py\n", "| a | b |\n", "<h2>x</h2>", "<table>", "</table>",
    "<pre>", "User: ", "Assistant: ", "{'role': 'user', 'content': '", "'}", "Q: ", "A: ", "Input: ", "- ", "1. ",
    "Dr. Who came. ", "word ", "Sentence here! ", "\\n", "\n", "\n\n", "\n\n\n", "\r\n", "\u2028", "。", "日本語",
    "\U0001f3f3\ufe0f\u200d\U0001f308", "e\u0301", "\u0000", "\ufeff", "\u202e", "ﷺ", "𝕏", "\ud800", "x" * 60,
    " " * 40, "." * 30, "a.b.c", "\u3000", "def f():\n    x\n",
)  # fmt: skip
BROKEN = st.lists(st.sampled_from(MARKS), max_size=80).map("".join)
GRANULAR = ("auto", "semantic", "structure")
FORMS = [*SPLITTERS, *(f"{name}:granularity={size}" for name in GRANULAR for size in ("paragraph", "passage"))]
LIMITS = st.tuples(st.integers(1, 10), st.integers(20, 60)).map(lambda pair: ChunkLimits(*pair))


def check(text: str, pieces: list[Piece], tokens: Tokens, limits: ChunkLimits) -> None:
    texts = [text[piece.start : piece.end] for piece in pieces]
    assert all(0 <= piece.start < piece.end <= len(text) for piece in pieces)
    assert all(part == part.strip() for part in texts)
    assert all(before.end <= after.start for before, after in pairwise(pieces))
    between = zip([0, *(piece.end for piece in pieces)], [*(piece.start for piece in pieces), len(text)], strict=True)
    assert all(not text[start:end].strip() for start, end in between)
    assert all(tokens.count(part) <= limits.max_tokens for part in texts)
    if len(pieces) > 1:
        assert all(tokens.count(part) >= limits.min_tokens for part in texts)
    if text.strip() and tokens.count(text.strip()) <= limits.min_tokens:
        assert len(pieces) == 1


@pytest.mark.parametrize("name", FORMS)
@given(text=BROKEN | HOSTILE, kind=st.sampled_from(KINDS), limits=LIMITS)
@example(text="\\n" + "." * 30, kind="table", limits=ChunkLimits(1, 20))
@example(text="\\n\\r" * 9, kind="table", limits=ChunkLimits(1, 8))
@example(text="." * 30 + "\\n", kind="table", limits=ChunkLimits(1, 20))
@example(text="a\\na\\n\\nword \\na" + "." * 30, kind="items", limits=ChunkLimits(1, 20))
def test_spans_are_exact_and_within_the_limits(name: str, text: str, kind: str, limits: ChunkLimits) -> None:
    splitter = make_splitter(name, Words(), letters, limits)
    pieces = splitter.split(text, kind)
    check(text, pieces, Words(), limits)
    assert splitter.split(text, kind) == pieces


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=BROKEN | HOSTILE, kind=st.sampled_from(KINDS))
def test_limits_hold_in_the_tokens_of_the_model(smollm2_tokens: FastTokens, name: str, text: str, kind: str) -> None:
    limits = ChunkLimits(8, 40)
    check(text, make_splitter(name, smollm2_tokens, letters, limits).split(text, kind), smollm2_tokens, limits)


@pytest.mark.parametrize("name", FORMS)
@given(text=BROKEN, overlap=st.integers(1, 10))
def test_an_overlap_is_there_only_when_asked_for(name: str, text: str, overlap: int) -> None:
    apart = make_splitter(name, Words(), letters, ChunkLimits(2, 30)).split(text)
    assert all(before.end <= after.start for before, after in pairwise(apart))
    pieces = make_splitter(name, Words(), letters, ChunkLimits(2, 30, overlap)).split(text)
    assert all(Words().count(text[piece.start : piece.end]) <= 30 for piece in pieces)
    for before, after in pairwise(pieces):
        assert before.start < after.start
        assert Words().count(text[after.start : before.end]) <= overlap + 1
    words = " ".join(f"w{n}" for n in range(200))
    shared = make_splitter(name, Words(), letters, ChunkLimits(2, 30, overlap)).split(words)
    assert all(after.start < before.end for before, after in pairwise(shared))


@pytest.mark.parametrize("name", FORMS)
def test_blank_texts_have_no_pieces(name: str) -> None:
    splitter = make_splitter(name, Words(), letters)
    assert [splitter.split(text, kind) for text in ("", " \n\t\u3000\n") for kind in KINDS] == [[]] * 2 * len(KINDS)


@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_kind_is_refused(name: str) -> None:
    with pytest.raises(SplitterError, match=r"unknown kind of document 'poem': choose from prose, markdown"):
        make_splitter(name, Words(), letters).split("text", "poem")


def test_an_unknown_splitter_is_refused() -> None:
    with pytest.raises(SplitterError, match=r"unknown splitter 'clever': choose from auto, fixed, semantic, structure"):
        make_splitter("clever", Words(), letters)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ((1, 7, 0), "max_tokens=7"),
        ((0, 20, 0), "min_tokens=0"),
        ((11, 20, 0), "min_tokens=11: choose from 1 to 10"),
        ((6, 20, 10), "min_tokens=6: choose from 1 to 5"),
        ((1, 20, 11), "overlap=11"),
    ],
)
def test_limits_that_no_text_can_keep_are_refused(limits: tuple[int, int, int], told: str) -> None:
    with pytest.raises(SplitterError, match=told):
        ChunkLimits(*limits)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "unit", ["A short one. ", "word ", ".", "x", "\n \n", "日本。", "# H\n", "|a|\n", "```\n", "Q: a\n", "= "]
)
def test_the_work_grows_with_the_text(name: str, unit: str) -> None:
    class Counted(Words):
        seen = 0

        def offsets(self, text: str) -> Sequence[Offsets]:
            self.seen += len(text)
            return super().offsets(text)

    def work(size: int) -> int:
        """Characters that are tokenised in all."""
        tokens = Counted()
        make_splitter(name, tokens, letters, ChunkLimits(5, 50)).split(unit * (size // len(unit)), "markdown")
        return tokens.seen

    assert work(16_000) <= 4.2 * work(4_000) + 2000
