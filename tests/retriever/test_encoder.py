"""Texts that are longer than an embedder reads at once: nothing of them is cut off."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from app.models.folders import resolve_embedder
from retriever import Vectors
from retriever.bert import BertEncoder
from retriever.encoder import IDS, LONGEST, SHORTEST, Encoder, valid
from retriever.sentence_model import LibraryEncoder, as_bert, make_encoder, read_model

SHORT = "The harbour master writes the tides down."
FIRST, LAST = "Rye bread rests for a day before it is cut. ", "The ferry leaves the island at noon. "
LONG = FIRST * 24 + LAST * 24  # about 500 tokens, of 256


def read() -> SentenceTransformer:
    return read_model(resolve_embedder("bundled:minilm"))


@pytest.fixture(scope="module", params=["bert", "library"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    """Our own forward, and the way that every other model goes."""
    made = as_bert(read()) if request.param == "bert" else LibraryEncoder(read())
    assert made is not None
    return made


def alone(encoder: Encoder, text: str) -> Vectors:
    vector: Vectors = encoder.encode([text], "document")[0]
    return vector


@pytest.mark.slow
def test_the_end_of_a_long_text_counts(encoder: Encoder) -> None:
    cut = np.empty((1, encoder.dimension), dtype=np.float32)
    encoder._encode([LONG], cut)
    assert float(alone(encoder, LONG) @ alone(encoder, LAST)) > float(cut[0] @ alone(encoder, LAST)) + 0.2
    assert (alone(encoder, LONG) != alone(encoder, LONG + SHORT)).any()


@pytest.mark.slow
def test_it_is_the_mean_of_its_parts_which_miss_nothing(encoder: Encoder) -> None:
    parts = encoder._pieces(LONG, "")
    assert "".join(parts) == LONG
    rows = encoder.tokenized(parts)
    assert all(len(row[IDS]) < encoder.limit for row in rows), "none is cut"
    mean = sum(len(row[IDS]) * alone(encoder, part) for row, part in zip(rows, parts, strict=True))
    np.testing.assert_allclose(alone(encoder, LONG), mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.slow
def test_a_text_that_fits_has_the_very_vector_that_it_had(encoder: Encoder) -> None:
    texts = [SHORT, LONG, FIRST * 20, ""]
    at_once = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    encoder._encode(texts, at_once)
    vectors = encoder.encode(texts, "document")
    assert encoder.whole(texts, "document") == [True, False, True, True]
    assert [bool((vectors[place] == at_once[place]).all()) for place in range(len(texts))] == [True, False, True, True]


def test_the_limit_is_the_last_length_that_is_read_at_once(encoder: Encoder) -> None:
    words = ["tree"] * (encoder.limit - 2)  # two marks stand around them
    assert encoder.whole([" ".join(words), " ".join([*words, "tree"])], "document") == [True, False]


def test_what_the_model_wants_in_front_stands_before_each_part(encoder: Encoder) -> None:
    encoder.prompts["told"] = "Says the harbour master: "
    parts = encoder._pieces(LONG, encoder.prompts["told"])
    lengths = [encoder.length(encoder.prompts["told"] + part) for part in parts]
    mean = sum(length * encoder.encode([part], "told")[0] for length, part in zip(lengths, parts, strict=True))
    np.testing.assert_allclose(encoder.encode([LONG], "told")[0], mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("included", [True, False])
def test_a_prompt_counts_as_the_library_has_it(included: bool, pooling: str) -> None:
    def prompted() -> SentenceTransformer:
        model = read()
        model.prompts = {"query": "Represent the question: ", "document": "passage: "}
        model[1].include_prompt, model[1].pooling_mode = included, pooling
        return model

    encoder, library, texts = LibraryEncoder(prompted()), prompted(), [SHORT, "Who?", FIRST * 5]
    for role in encoder.prompts:
        expected = library.encode(texts, prompt_name=role, normalize_embeddings=True, show_progress_bar=False)
        np.testing.assert_allclose(encoder.encode(texts, role), expected, atol=1e-5)
    assert isinstance(make_encoder(prompted()), BertEncoder) == included


def test_a_text_without_end_has_a_bounded_number_of_parts(encoder: Encoder) -> None:
    assert len(valid("a" * 10 * LONGEST)) == LONGEST
    assert "".join(encoder._pieces("-" * 300, "")) == "-" * 300, "one without blanks is cut anywhere"
    assert len(encoder._pieces("-" * 100, "a " * 300)) < 2 * 100 / SHORTEST, "a prompt that leaves no room"
