from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from app.models.folders import resolve_embedder
from retriever.balance import EVEN_SHARE, FEWEST_CHUNKS, Balance, Withheld, balance, separation, withheld
from retriever.embedder import Embedder
from tests.withholding import by_meaning, by_words

LEAST, MOST = 1 / (1 + 4.0), 1 / (1 + 0.5)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(resolve_embedder("bundled:minilm"))


def sample(embedder: Embedder, chunks: Sequence[Sequence[str]], seed: int = 0) -> list[Withheld]:
    chance = np.random.default_rng(seed)
    found = [withheld(one, embedder.embed(list(one)), chance) for one in chunks]
    return [one for one in found if one is not None]


def test_where_words_are_useless_meaning_counts_most(embedder: Embedder) -> None:
    found = balance(sample(embedder, by_meaning()))
    assert found.chunks == 24
    assert found.meaning > 0.5 > found.words
    assert found.vector_share == pytest.approx(MOST)


def test_where_vectors_are_useless_words_count_most(embedder: Embedder) -> None:
    found = balance(sample(embedder, by_words()))
    assert found.words > 2 * found.meaning
    assert found.vector_share < 0.3


def test_it_is_the_same_each_time(embedder: Embedder) -> None:
    assert balance(sample(embedder, by_words())) == balance(sample(embedder, by_words()))


@pytest.mark.parametrize(
    ("meaning", "words", "share"),
    [
        (2.0, 2.6, 0.5),  # as English texts are
        (2.0, 5.2, 0.2),
        (2.0, 50.0, LEAST),
        (2.0, 0.1, MOST),
        (2.0, 0.0, MOST),
        (2.0, -1.0, MOST),
        (0.0, 2.0, LEAST),
        (-1.0, 2.0, LEAST),
        (0.0, 0.0, EVEN_SHARE),
        (-1.0, -2.0, EVEN_SHARE),
    ],
)
def test_the_share_follows_the_ratio(meaning: float, words: float, share: float) -> None:
    assert Balance(FEWEST_CHUNKS, meaning, words).vector_share == pytest.approx(share)
    assert Balance(FEWEST_CHUNKS - 1, meaning, words).vector_share == EVEN_SHARE, "too few chunks tell nothing"


def test_separation_is_counted_in_deviations_of_the_others() -> None:
    """As a slow loop has it."""
    scores = np.random.default_rng(0).random((9, 9))
    apart = [
        (scores[at, at] - np.mean(others)) / np.std(others)
        for at in range(9)
        for others in [[scores[at, place] for place in range(9) if place != at]]
    ]
    assert separation(scores) == pytest.approx(float(np.mean(apart)))


def test_scores_that_say_nothing_separate_nothing() -> None:
    assert separation(np.zeros((5, 5))) == 0
    assert separation(np.ones((5, 5))) == 0
    assert separation(np.full((5, 5), np.nan)) == 0
    assert 0 < separation(np.eye(5)) < 1000, "nor is one without a rival clear beyond all measure"


def test_broken_vectors_are_useless_ones() -> None:
    chance = np.random.default_rng(0)
    chunks = [withheld(one, np.full((3, 4), np.nan, np.float32), chance) for one in by_words()]
    found = balance([one for one in chunks if one is not None])
    assert (found.meaning, found.vector_share) == (0, pytest.approx(LEAST))


@pytest.mark.parametrize("count", [0, 1])
def test_so_few_chunks_have_no_others(count: int, embedder: Embedder) -> None:
    assert balance(sample(embedder, by_words(count))) == Balance(count, 0.0, 0.0)


def test_a_sentence_is_withheld_from_its_chunk() -> None:
    vectors = np.eye(3, dtype=np.float32)
    chunk = ["One two three four five six.", "Short.", "Too short as well."]
    found = withheld(chunk, vectors, np.random.default_rng(0))
    assert found is not None
    assert (found.question, found.rest) == (chunk[0], "Short.\nToo short as well.")
    np.testing.assert_allclose(found.asked, vectors[0])
    np.testing.assert_allclose(found.left, np.array([0, 1, 1]) / np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("chunk", [[], ["One two three four five six."] * 2, ["One two three."] * 9])
def test_what_is_too_short_is_passed_over(chunk: list[str]) -> None:
    assert withheld(chunk, np.ones((len(chunk), 3), np.float32), np.random.default_rng(0)) is None
