"""With a tiny cross-encoder of random weights; what it prefers is its own affair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from retriever import RetrieverError
from retriever.encoder import BATCH_TOKENS
from retriever.sentence_model import Reranker

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "wrote", "the", "book", "ann", "did", "rye"]


def write_model(folder: Path, labels: int = 1) -> Path:
    numbers = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    fast.model_max_length = 64
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=labels,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Reranker:
    return Reranker(write_model(tmp_path_factory.mktemp("reranker")))


def test_each_text_gets_a_number_of_its_own(reranker: Reranker) -> None:
    texts = ["ann wrote the book", "rye", "who did"]
    scores = reranker.score("who wrote the book", texts)
    assert scores.shape == (3,)
    assert len(set(scores.tolist())) == 3
    again = [float(reranker.score("who wrote the book", [text])[0]) for text in texts]
    np.testing.assert_allclose(scores, again, atol=1e-5)


def test_the_question_counts(reranker: Reranker) -> None:
    one, other = (reranker.score(question, ["ann wrote the book"])[0] for question in ("who", "rye"))
    assert one != other


def test_no_texts_load_no_model(tmp_path: Path) -> None:
    assert Reranker(tmp_path / "nowhere").score("who", []).shape == (0,)


def test_any_text_can_be_scored(reranker: Reranker) -> None:
    assert np.isfinite(reranker.score("\ud800\0", ["", "\udfff", "日本" * 500])).all()


def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RetrieverError, match=f"cannot load the reranking model in {tmp_path}"):
        Reranker(tmp_path).score("who", ["ann"])


def test_a_classifier_is_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="gives 3 labels; a reranker gives one number"):
        Reranker(write_model(tmp_path, labels=3)).score("who", ["ann"])


def test_batches_keep_to_a_budget_of_tokens(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[list[int]] = []
    predict = reranker._model.predict

    def counted(rows: list[tuple[str, str]], **options: Any) -> Any:
        sizes.append([len(text.split()) + 4 for _, text in rows])  # with the question and what stands around
        return predict(rows, **options)

    monkeypatch.setattr(reranker._model, "predict", counted)
    texts = ["rye " * (1 + 11 * number % 50) for number in range(200)]
    scores = reranker.score("who", texts)
    assert [len(batch) * max(batch) <= BATCH_TOKENS for batch in sizes] == [True] * len(sizes)
    assert 1 < len(sizes) < 5
    alone = [float(reranker.score("who", [text])[0]) for text in texts[:20]]
    np.testing.assert_allclose(scores[:20], alone, atol=1e-5)


def test_what_goes_wrong_in_the_model_is_one_line(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rows: object, **options: object) -> None:
        raise RuntimeError("CUDA out of memory\nand much more")

    with monkeypatch.context() as patched:
        patched.setattr(reranker._model, "predict", fail)
        with pytest.raises(RetrieverError, match=r"the reranking model in .* fails: CUDA out of memory$"):
            reranker.score("who", ["ann"])
    monkeypatch.setattr(reranker._model, "predict", lambda rows, **options: np.array([np.nan]))
    with pytest.raises(RetrieverError, match="scores that are no numbers"):
        reranker.score("who", ["ann"])


def test_a_model_without_a_head_is_no_reranker(tmp_path: Path) -> None:
    """The library would give it one of random numbers."""
    write_model(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("BertForSequenceClassification", "BertModel"))
    with pytest.raises(RetrieverError, match="is a BertModel, which ranks nothing"):
        Reranker(tmp_path).load()
