from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retriever import RetrieverError
from retriever.bm25 import hashed
from retriever.keyword_index import KeywordIndex
from retriever.memory_source import MemorySource
from retriever.words import terms
from tests.retriever.chunks import slow_bm25, source_of, unit

HOSTILE = [
    '"quoted" AND NOT (NEAR ant*)',
    "ant\0bee",
    "'; DROP TABLE chunks; --",
    "日本語のテキスト",
    "\ud800 half of a pair",
    "*" * 1000,
    " ".join(f"word{number}" for number in range(10_000)),
    "",
    "   \n",
    "text:ant ^ant {ant} -ant",
]


def index_of(texts: list[str]) -> tuple[KeywordIndex, MemorySource]:
    source = MemorySource(2)
    source.add(texts, unit(len(texts), dimension=2))
    index = KeywordIndex()
    index.catch_up(source)
    return index, source


@pytest.mark.slow
@pytest.mark.parametrize("question", HOSTILE, ids=range(len(HOSTILE)))
def test_any_question_is_only_words(question: str) -> None:
    texts = ["an ant", "日本語", "drop table chunks", *HOSTILE]
    index, _ = index_of(texts)
    ids, scores = index.search(question, 3)
    expected = slow_bm25(dict(enumerate(texts, start=1)), question, 3)
    if len(question.split()) < 64:
        assert list(zip(ids.tolist(), scores.tolist(), strict=True)) == [
            (number, pytest.approx(score)) for number, score in expected
        ]
    else:
        assert ids[0] == expected[0][0]


def test_it_equals_the_slow_one_through_many_small_changes() -> None:
    random = np.random.default_rng(0)
    vocabulary = [f"w{number}" for number in range(30)]
    texts: dict[int, str] = {}
    index, source = index_of([])
    for _ in range(60):
        fresh = [" ".join(random.choice(vocabulary, random.integers(0, 20))) for _ in range(random.integers(1, 8))]
        texts |= dict(zip(source.add(fresh, unit(len(fresh), dimension=2)).tolist(), fresh, strict=True))
        for gone in random.choice(list(texts), min(3, len(texts)), replace=False).tolist():
            source.retire([gone])
            del texts[gone]
        index.catch_up(source)
        index.check_integrity()
        ids, scores = index.search("w1 w2 w3 w29", 10)
        own = dict(slow_bm25(texts, "w1 w2 w3 w29", len(texts)))
        assert scores.tolist() == pytest.approx([own[number] for number in ids.tolist()])
        assert scores.tolist() == pytest.approx(sorted(own.values(), reverse=True)[:10])


def test_the_number_of_segments_stays_small() -> None:
    index, source = index_of([])
    for number in range(300):
        source.add([f"text {number}"], unit(1, dimension=2))
        index.catch_up(source)
    assert len(index._segments) <= 9, "the logarithm of 300"
    index.check_integrity()


def test_a_search_for_nothing_is_told() -> None:
    with pytest.raises(RetrieverError, match="ask for at least 1"):
        KeywordIndex().search("ant", 0)


def test_a_segment_with_many_dead_is_written_anew() -> None:
    index, source = index_of([f"text {number}" for number in range(40)])
    source.retire(range(1, 11))
    index.catch_up(source)
    assert len(index._segments[0].ids) == 40, "a quarter may be dead"
    source.retire([11])
    index.catch_up(source)
    assert index._segments[0].ids.tolist() == list(range(12, 41))


def test_words_that_are_deleted_are_in_no_file(tmp_path: Path) -> None:
    source = MemorySource(2)
    source.add([f"text secret{number}" for number in range(40)], unit(40, dimension=2))
    index = KeywordIndex(tmp_path)
    index.catch_up(source)
    source.retire([3, 20])
    index.catch_up(source)
    assert index.save() and len(index._segments[0].ids) == 38
    (file,) = tmp_path.glob("*.bm25")
    secret = [hashed(terms(f"secret{number}").stems[0]).to_bytes(8, "little") for number in range(40)]
    assert [number for number, one in enumerate(secret) if one not in file.read_bytes()] == [2, 19]
    assert index.search("secret5", 3)[0].tolist() == [6] and not len(index.search("secret2", 3)[0])
    index.check_integrity()


@pytest.mark.parametrize("k", [1, 5, 40, 3000])
def test_frequent_words_beside_rare_ones(k: int) -> None:
    random = np.random.default_rng(1)
    shares = 1 / np.arange(1, 301)
    vocabulary = [f"w{number}" for number in range(300)]
    texts = [" ".join(random.choice(vocabulary, 12, p=shares / shares.sum())) for _ in range(1500)]
    index, source = index_of(texts[:1000])
    source.add(texts[1000:], unit(500, dimension=2))
    index.catch_up(source)  # another segment
    numbered = dict(enumerate(texts, start=1))
    for question in ("w0 w1", "w0 w299", "w0 w250 w280", "w0 w1 w2 w90 w200", "w299", "w0"):
        ids, scores = index.search(question, k)
        every = slow_bm25(numbered, question, len(texts))
        assert ids.tolist() == [number for number, _ in every][:k]
        assert scores.tolist() == pytest.approx([score for _, score in every][:k])
        ids, _ = index.search(question, k, np.arange(1, 1500, 7))
        assert ids.tolist() == [number for number, _ in every if number % 7 == 1][:k]


def test_its_bytes_are_those_of_its_file(tmp_path: Path) -> None:
    source = source_of(500)
    index = KeywordIndex(tmp_path)
    index.catch_up(source)
    assert index.save()
    (file,) = tmp_path.glob("*.bm25")
    assert index.nbytes == pytest.approx(file.stat().st_size, rel=0.02) and index.nbytes > 0
    again = KeywordIndex(tmp_path)
    again.catch_up(source)
    assert again.nbytes == index.nbytes
