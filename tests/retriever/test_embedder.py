from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.models.folders import resolve_embedder
from retriever import RetrieverError
from retriever.embedder import Embedder
from retriever.sentence_model import read_model


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(resolve_embedder("bundled:minilm"))


def test_bfloat16_vectors_point_the_same_way(embedder: Embedder) -> None:
    narrow = Embedder(embedder.folder, narrow=True)
    texts = ["The ferry leaves at noon.", "Rye bread rests for a day.", "x", ""]
    ours = narrow.embed(texts)
    assert ours.dtype == np.float32
    np.testing.assert_allclose((ours * embedder.embed(texts)).sum(axis=1), 1, atol=2e-4)
    np.testing.assert_allclose(narrow.embed_query(texts[0]), ours[0], atol=5e-3)


def test_vectors_have_length_one_and_follow_the_meaning(embedder: Embedder) -> None:
    vectors = embedder.embed(["Who wrote the novel?", "The author of the book is unknown.", "Rye flour and water."])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, embedder.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1


def test_a_text_has_the_same_vector_in_any_company(embedder: Embedder) -> None:
    texts = ["short", "a much longer text than the other one, so that it is padded", ""]
    together = embedder.embed(texts)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    vectors = embedder.embed([])
    assert vectors.shape == (0, embedder.dimension)
    assert vectors.dtype == np.float32


def test_it_says_nothing(embedder: Embedder, capfd: pytest.CaptureFixture[str]) -> None:
    Embedder(embedder.folder).embed(["a"])
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RetrieverError, match=f"cannot load the embedding model in {tmp_path}"):
        Embedder(tmp_path).embed(["a"])


def test_the_library_is_imported_at_first_use() -> None:
    code = "import sys, retriever.embedder; print({'torch', 'sentence_transformers'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    # The package itself may well load torch, for what else lies in it one day; the embedding library it must not.
    assert "sentence_transformers" not in ran.stdout


@pytest.mark.slow
def test_texts_come_back_in_their_order(embedder: Embedder) -> None:
    texts = ["word " * length for length in (300, 1, 40, 7, 1000, 2)]
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(embedder.embed(texts), alone, atol=1e-5)


def test_it_equals_the_library(embedder: Embedder) -> None:
    texts = ["A sentence.", "Another one, which is longer than the first.", "日本語", "x" * 5000]
    expected = read_model(embedder.folder).encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.embed_query(texts[0]), expected[0], atol=1e-5)


def test_half_of_a_surrogate_pair_can_be_embedded(embedder: Embedder) -> None:
    np.testing.assert_array_equal(embedder.embed(["a \ud800 b"]), embedder.embed(["a ? b"]))


@pytest.mark.slow
def test_words_that_a_model_wants_in_front(embedder: Embedder) -> None:
    prompted = Embedder(embedder.folder)
    prompted._encoder.prompts = {"query": "question: ", "document": ""}
    np.testing.assert_allclose(prompted.embed_query("who?"), embedder.embed(["question: who?"])[0], atol=1e-6)
    np.testing.assert_allclose(prompted.embed(["who?"]), embedder.embed(["who?"]), atol=1e-6)
