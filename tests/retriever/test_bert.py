"""Our forward of BERT against sentence-transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers.activations import ACT2FN

from app.models.folders import resolve_embedder
from retriever import Vectors
from retriever.bert import BertEncoder
from retriever.encoder import IDS, Encoder
from retriever.packing import multiplies
from retriever.sentence_model import LibraryEncoder, as_bert, make_encoder, read_model

TEXTS = [
    "A sentence.",
    "Who keeps the books of the harbour when the master of the old town is away?",
    "Bread of rye. " * 200,  # cut
    "",
    " \n\t ",
    "日本語のテキスト",
    "e\u0301 \u200b\u202e \x00 \U0001f469\u200d\U0001f680 [SEP] [PAD] ##ing",
    "x" * 3000,
    "one two three four",
]
Change = Callable[[SentenceTransformer], object]


def read() -> SentenceTransformer:
    return read_model(resolve_embedder("bundled:minilm"))


@pytest.fixture(scope="module")
def library() -> SentenceTransformer:
    return read()


@pytest.fixture(scope="module")
def ours() -> BertEncoder:
    encoder = make_encoder(read())
    assert isinstance(encoder, BertEncoder)
    return encoder


def reference(model: SentenceTransformer, texts: list[str] = TEXTS) -> Vectors:
    vectors: Vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    return vectors


def read_at_once(encoder: Encoder, texts: list[str] = TEXTS) -> Vectors:
    """As the library does it, which cuts off the rest."""
    vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    encoder._encode(texts, vectors)
    return vectors


def made(change: Change) -> tuple[SentenceTransformer, BertEncoder | None]:
    """A model of the library, and our encoder of another one like it."""
    models = read(), read()
    for model in models:
        change(model)
    return models[0], as_bert(models[1])


@pytest.mark.slow
def test_it_equals_the_library(ours: BertEncoder, library: SentenceTransformer) -> None:
    expected = reference(library)
    np.testing.assert_allclose(read_at_once(ours), expected, atol=2e-6)
    alone = np.concatenate([read_at_once(ours, [text]) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, atol=2e-6)


@pytest.mark.parametrize("tokens", [3, 4, 15, 16, 17, 33, 100, 255, 256, 257])
def test_it_equals_the_library_at_any_length(ours: BertEncoder, library: SentenceTransformer, tokens: int) -> None:
    text = " ".join(["tree", "bread"] * 200)[: 5 * (tokens - 2) + (tokens - 2) // 2]
    np.testing.assert_allclose(read_at_once(ours, [text]), reference(library, [text]), atol=2e-6)


@pytest.mark.slow
def test_bfloat16_is_as_near_as_the_library_comes(library: SentenceTransformer) -> None:
    expected = reference(library)
    narrow = make_encoder(read().bfloat16())
    assert isinstance(narrow, BertEncoder) == multiplies(torch.bfloat16)
    theirs = read_at_once(LibraryEncoder(read().bfloat16()))
    cosines = (read_at_once(narrow) * expected).sum(axis=1)
    assert cosines.min() > min(0.9997, float((theirs * expected).sum(axis=1).min()) - 1e-4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=400), min_size=1, max_size=4))
def test_tokens_are_the_librarys(ours: BertEncoder, library: SentenceTransformer, texts: list[str]) -> None:
    valid = [text.encode("utf-8", "replace").decode() for text in texts]
    expected = library.tokenizer(valid, truncation=True, max_length=256, padding=False)["input_ids"]
    assert [row[IDS] for row in ours.tokenized(valid)] == expected


def first_vector(model: SentenceTransformer) -> None:
    pooling: Any = model[1]
    pooling.pooling_mode = "cls"


def tanh(model: SentenceTransformer) -> None:
    bert: Any = model[0]
    bert.model.config.hidden_act = "gelu_new"
    for layer in bert.model.encoder.layer:
        layer.intermediate.intermediate_act_fn = ACT2FN["gelu_new"]


def shorter(model: SentenceTransformer) -> None:
    model.max_seq_length = 12
    bert: Any = model[0]
    bert.model.encoder.layer = bert.model.encoder.layer[:2]


def no_length_of_one(model: SentenceTransformer) -> None:
    del model[2]


@pytest.mark.slow
@pytest.mark.parametrize("change", [first_vector, tanh, shorter, no_length_of_one])
def test_models_of_the_same_kind(change: Change) -> None:
    library, encoder = made(change)
    assert encoder is not None
    np.testing.assert_allclose(read_at_once(encoder), reference(library), atol=3e-6)


def greatest(model: SentenceTransformer) -> None:
    pooling: Any = model[1]
    pooling.pooling_mode = "max"


def another_activation(model: SentenceTransformer) -> None:
    bert: Any = model[0]
    bert.model.config.hidden_act = "relu"


def says_another_activation(model: SentenceTransformer) -> None:
    """Only the comparison of vectors can tell."""
    bert: Any = model[0]
    for layer in bert.model.encoder.layer:
        layer.intermediate.intermediate_act_fn = nn.ReLU()


def one_more_part(model: SentenceTransformer) -> None:
    model.append(nn.Identity())


def pads_in_front(model: SentenceTransformer) -> None:
    model.tokenizer.padding_side = "left"


def double(model: SentenceTransformer) -> None:
    model.to(torch.float64)


@pytest.mark.parametrize(
    "change", [greatest, another_activation, says_another_activation, one_more_part, pads_in_front, double]
)
def test_other_models_are_left_to_the_library(change: Change) -> None:
    _, encoder = made(change)
    assert encoder is None


@pytest.mark.slow
def test_what_is_left_to_the_library_is_as_the_library_has_it() -> None:
    library, model = read(), read()
    greatest(library)
    says_another_activation(library)
    greatest(model)
    says_another_activation(model)
    encoder = make_encoder(model)
    assert isinstance(encoder, LibraryEncoder)
    np.testing.assert_allclose(read_at_once(encoder), reference(library), atol=2e-5)
