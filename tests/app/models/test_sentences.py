"""The vectors of sentences, each made once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from app.models import sentences as of_sentences
from app.models.loading import load_embedder
from app.models.sentences import MOST_SENTENCES, SentenceEmbedder, sentences_of
from app.samples import read_samples
from app.settings import Settings
from retriever import Vectors
from retriever.embedder import Embedder
from retriever.sentences import nearest, pack, unpack


class Counting:
    """An embedder of four dimensions that remembers what it was asked."""

    dimension = 4

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        vectors = np.array([[len(text), text.count("a"), text.count("b"), 1] for text in texts], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def sentences(counting: Counting) -> SentenceEmbedder:
    return SentenceEmbedder(counting)  # type: ignore[arg-type]  # all that is asked of an embedder


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(Settings(device="cpu"))


def test_texts_of_one_subject_are_nearer_than_those_of_two(embedder: Embedder) -> None:
    ours = SentenceEmbedder(embedder)
    vectors = [ours.embed([line for line in text.splitlines() if line]) for text in read_samples().values()]
    within = np.mean([float((one[:-1] * one[1:]).sum(axis=1).mean()) for one in vectors])
    between = np.mean([float((one @ other.T).mean()) for one, other in itertools.combinations(vectors, 2)])
    assert within > between + 0.05


def test_each_sentence_is_embedded_once(counting: Counting, sentences: SentenceEmbedder) -> None:
    first = sentences.embed(["a", "bb", "a"])
    again = sentences.embed(["bb", "ccc", "a"])
    assert sorted(counting.asked) == ["a", "bb", "ccc"]
    np.testing.assert_array_equal(first[[1, 0]], again[[0, 2]])
    assert sentences.embed([]).shape == (0, 4)


def test_it_remembers_no_more_than_it_may(
    counting: Counting, sentences: SentenceEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_sentences, "REMEMBERED", 3)
    texts = ["a" * length for length in range(1, 8)]
    expected = SentenceEmbedder(Counting()).embed(texts)  # type: ignore[arg-type]  # as above
    np.testing.assert_array_equal(sentences.embed(texts), expected)
    assert len(sentences._known) == 3
    np.testing.assert_array_equal(sentences.embed(texts), expected)


def test_a_chunk_is_packed_by_its_sentences(counting: Counting, sentences: SentenceEmbedder) -> None:
    chunks = ["An apple. A banana!", "Cherries", "| a | b |\n| 1 | 2 |"]
    packed = sentences.packed(chunks)
    assert [len(unpack(one, 4)) for one in packed] == [2, 1, 2]
    np.testing.assert_allclose(unpack(packed[0], 4), sentences.embed(["An apple.", "A banana!"]), atol=1 / 127)


def test_a_chunk_has_no_more_of_them_than_are_kept() -> None:
    text = " ".join(f"This is sentence {number}." for number in range(3 * MOST_SENTENCES + 1))
    found = sentences_of(text)
    assert len(found) <= MOST_SENTENCES
    assert " ".join(found) == text
    assert sentences_of("...") == ["..."]


def test_the_nearest_sentence_of_each_chunk_is_found() -> None:
    vectors = np.eye(4, dtype=np.float32)
    question = np.array([0.8, 0.6, 0, 0], dtype=np.float32)
    found = nearest(question, [pack(vectors[1:]), None, pack(vectors), b"", pack(vectors[2:])])
    np.testing.assert_allclose(found, [0.6, np.nan, 0.8, np.nan, 0], atol=1e-2)
    assert np.isnan(nearest(question, [b"of another dimension"])).all()
    assert nearest(question, []).shape == (0,)
