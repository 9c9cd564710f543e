from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter import SplitterError
from splitter.passages import split_passages


def words(text: str) -> int:
    return len(text.split())


def characters(text: str) -> int:
    return len(text)


def pairs(text: str) -> int:
    """A count of pieces is more than that of the whole, or less: neither adds up."""
    return (len(text) + 1) // 2 + text.count("a ")


TEXTS = st.text(alphabet="ab .!\n。\t'", max_size=300)


@pytest.mark.parametrize("count", [words, characters, pairs])
@given(text=TEXTS, limit=st.integers(2, 40))
def test_passages_hold_everything_within_the_limit(count: object, text: str, limit: int) -> None:
    assert callable(count)
    offsets = split_passages(text, count, limit)
    passages = [text[start:end] for start, end in offsets]
    # A single character that counts more is all that may exceed it.
    assert all(count(passage) <= limit or len(passage) == 1 for passage in passages)
    assert all(passage == passage.strip() != "" for passage in passages)
    assert all(before[1] <= after[0] for before, after in pairwise(offsets))
    assert re.sub(r"\s", "", "".join(passages)) == re.sub(r"\s", "", text)


def test_sentences_stay_whole() -> None:
    text = 'It rained. Nobody came! "Why?" she asked.\n\nA title, no stop\n\nThe end… And more.'
    passages = [text[start:end] for start, end in split_passages(text, words, 4)]
    assert passages == ["It rained. Nobody came!", '"Why?" she asked.', "A title, no stop", "The end… And more."]


def test_only_a_sentence_above_the_limit_is_cut_between_words() -> None:
    text = "One two. This sentence is too long for it. Five six."
    passages = [text[start:end] for start, end in split_passages(text, words, 4)]
    assert passages == ["One two. This sentence", "is too long for", "it. Five six."]


def test_as_many_sentences_as_fit_share_a_passage() -> None:
    text = "One two. Three four. Five six. Seven eight. Nine."
    passages = [text[start:end] for start, end in split_passages(text, words, 6)]
    assert passages == ["One two. Three four. Five six.", "Seven eight. Nine."]


def test_a_long_word_is_cut_anywhere() -> None:
    text = "x" * 25 + " y"
    assert split_passages(text, characters, 10) == [(0, 10), (10, 20), (20, 27)]


def test_nothing_gives_nothing() -> None:
    assert split_passages(" \n\t\n ", words, 5) == []


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(SplitterError, match="at most 0 tokens"):
        split_passages("text", words, 0)


@pytest.mark.parametrize("unit", ["A short one. ", "word ", ".", "x", "\n \n", "日本。", "a. \n\n"])
def test_the_work_grows_with_the_text(unit: str) -> None:
    def work(size: int) -> int:
        """Characters that are counted in all."""
        seen = 0

        def count(text: str) -> int:
            nonlocal seen
            seen += len(text)
            return len(text)

        split_passages(unit * (size // len(unit)), count, 50)
        return seen

    assert work(16_000) <= 4.2 * work(4_000) + 500
