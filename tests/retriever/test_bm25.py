"""BM25 over segments against the textbook's, which reads every chunk."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.bm25 import MOST_WORDS, WordSegment, build, compacted, merge, search
from retriever.words import asked_words
from tests.retriever.chunks import slow_bm25

WORDS = st.sampled_from(["ant", "bee", "cat", "dog", "the", "日本", "Éa", "x_y", "\0"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=30)


def segments_of(texts: list[str], cuts: set[int]) -> list[WordSegment]:
    bounds = sorted({0, len(texts), *(cut for cut in cuts if cut < len(texts))})
    ids = np.arange(1, len(texts) + 1, dtype=np.int64) * 10
    return [build(ids[start:end], texts[start:end]) for start, end in pairwise(bounds)]


def assert_equal(segments: list[WordSegment], texts: dict[int, str], question: str, k: int) -> None:
    expected = slow_bm25(texts, question, len(texts))
    ids, scores = search(segments, [(word,) for word in asked_words(question)], k, None)
    assert scores.tolist() == pytest.approx([score for _, score in expected[:k]])
    own = dict(expected)
    assert scores.tolist() == pytest.approx([own[int(number)] for number in ids]), "each chunk has its own score"


@given(TEXTS, st.sets(st.integers(1, 29)), st.lists(WORDS, min_size=1, max_size=6).map(" ".join), st.integers(1, 40))
def test_it_equals_the_slow_one(texts: list[str], cuts: set[int], question: str, k: int) -> None:
    by_id = {10 * number: text for number, text in enumerate(texts, start=1)}
    assert_equal(segments_of(texts, cuts), by_id, question, k)


@given(TEXTS, st.sets(st.integers(1, 30)))
def test_a_segment_is_compacted_as_it_would_be_merged(texts: list[str], gone: set[int]) -> None:
    (segment,) = segments_of(texts, set())
    segment.remove(np.array(sorted(gone), dtype=np.int64) * 10)
    expected, found = merge([segment]).arrays(), compacted(segment).arrays()
    assert all(found[name].dtype == array.dtype for name, array in expected.items())
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


@given(TEXTS, st.sets(st.integers(1, 29)), st.sets(st.integers(1, 30)), st.lists(WORDS, min_size=1).map(" ".join))
def test_what_is_removed_leaves_no_trace(texts: list[str], cuts: set[int], gone: set[int], question: str) -> None:
    """Neither in the scores nor after a merge."""
    left = {10 * number: text for number, text in enumerate(texts, start=1) if number not in gone}
    segments = segments_of(texts, cuts)
    for segment in segments:
        segment.remove(np.array(sorted(gone), dtype=np.int64) * 10)
    assert_equal(segments, left, question, 30)
    merged = merge(segments)
    assert merged.ids.tolist() == sorted(left)
    assert merged.alive.all()
    assert_equal([merged], left, question, 30)


@given(TEXTS, st.sets(st.integers(1, 30)), st.lists(WORDS, min_size=1).map(" ".join), st.integers(1, 5))
def test_a_filter_gives_the_best_of_the_allowed(texts: list[str], chosen: set[int], question: str, k: int) -> None:
    allowed = np.array(sorted(chosen), dtype=np.int64) * 10
    by_id = {10 * number: text for number, text in enumerate(texts, start=1)}
    expected = [one for one in slow_bm25(by_id, question, 30) if one[0] in set(allowed.tolist())][:k]
    _, scores = search(segments_of(texts, {3}), [(word,) for word in asked_words(question)], k, allowed)
    assert scores.tolist() == pytest.approx([score for _, score in expected])


def test_equal_scores_are_ordered_by_id() -> None:
    ids, _ = search(segments_of(["ant bee"] * 20, {4, 9}), [("ant",)], 5, None)
    assert ids.tolist() == [10, 20, 30, 40, 50]


def test_of_a_long_question_the_rarest_words_count() -> None:
    texts = [f"common{number}" for number in range(MOST_WORDS)] * 2 + ["rare"]
    asked = [f"common{number}" for number in range(MOST_WORDS)] + ["rare"]
    ids, _ = search(segments_of(texts, set()), [(word,) for word in asked], len(texts), None)
    assert int(ids[0]) == 10 * len(texts)
    assert len(ids) == len(texts) - 2, "one of the words was left out, and with it its two chunks"


def test_words_that_are_nowhere_find_nothing() -> None:
    for segments in ([], segments_of(["ant"], set()), segments_of(["", "\0"], set())):
        ids, scores = search(segments, ["zebra"], 5, None)
        assert ids.tolist() == scores.tolist() == []


def test_a_word_may_stand_more_often_than_is_counted() -> None:
    segment = build(np.array([1], dtype=np.int64), ["ant " * 70_000 + "bee"])
    assert segment.times.max() == 65_535
    assert segment.lengths.tolist() == [70_001]
