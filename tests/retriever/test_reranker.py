"""With a tiny cross-encoder of random weights; what it prefers is its own affair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertPreTrainedModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from retriever import RetrieverError
from retriever.encoder import BATCH_TOKENS
from retriever.sentence_model import Reranker

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "wrote", "the", "book", "ann", "did", "rye"]


def write_model(folder: Path, labels: int = 1, words: Sequence[str] = VOCABULARY) -> Path:
    numbers = {word: number for number, word in enumerate(words)}
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
        vocab_size=len(words),
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


def test_threads_rerank_at_once(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of a tokenizer changes under another thread that reads by it."""
    reranker.load()
    changed: list[object] = []
    own = PreTrainedTokenizerFast.set_truncation_and_padding

    def seen(tokenizer: Any, *given: Any, **named: Any) -> None:
        backend = tokenizer.backend_tokenizer
        before = backend.padding, backend.truncation
        own(tokenizer, *given, **named)
        if before != (backend.padding, backend.truncation):
            changed.append(before)

    monkeypatch.setattr(PreTrainedTokenizerFast, "set_truncation_and_padding", seen)
    texts = ["ann wrote the book", "rye", "who did the book"] * 7
    expected = reranker.score("who wrote the book", texts)
    with ThreadPoolExecutor(8) as threads:
        for scores in threads.map(lambda _: reranker.score("who wrote the book", texts), range(40)):
            np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert not changed


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


def write_as(folder: Path, kind: type[BertPreTrainedModel], **config: Any) -> Path:
    """The same model, as another kind saves it."""
    write_model(folder)
    kind(BertConfig.from_pretrained(folder)).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM, BertForTokenClassification])
@pytest.mark.parametrize("architectures", [None, ["BertForSequenceClassification"]])
def test_a_model_without_a_head_is_no_reranker(
    tmp_path: Path, kind: type[BertPreTrainedModel], architectures: list[str] | None
) -> None:
    """The library would give it one of random numbers, whatever the model calls itself."""
    folder = write_as(tmp_path, kind, architectures=architectures)
    with pytest.raises(RetrieverError, match=r"lacks (classifier\.bias|bert\.pooler).*, so it ranks nothing"):
        Reranker(folder).load()


def test_what_a_model_calls_itself_does_not_matter(tmp_path: Path) -> None:
    folder = write_as(tmp_path, BertForSequenceClassification, architectures=["BertModel"])
    assert np.isfinite(Reranker(folder).score("who", ["ann"])).all()


def write_modules(folder: Path, *, scores: bool) -> Path:
    write_as(folder, BertModel)
    bert = Transformer(str(folder), transformer_task="feature-extraction")
    modules: list[torch.nn.Module] = [bert, Pooling(16)]
    if scores:
        modules.append(Dense(16, 1, module_output_name="scores"))
        CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
    else:
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    assert (folder / "modules.json").exists()
    return folder


def test_a_cross_encoder_of_modules_is_a_reranker(tmp_path: Path) -> None:
    """Its head is a layer beside the transformer, which has none of its own."""
    folder = write_modules(tmp_path, scores=True)
    once, again = (Reranker(folder).score("who", ["ann", "rye"]) for _ in range(2))
    assert once.tolist() == again.tolist()
    assert once[0] != once[1]


def test_a_language_model_that_says_yes_or_no_is_a_reranker(tmp_path: Path) -> None:
    words = [*VOCABULARY, "yes", "no"]
    write_model(tmp_path, words=words)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=1.0,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    once, again = (Reranker(tmp_path).score("who", ["ann", "rye"]) for _ in range(2))
    assert once.tolist() == again.tolist()
    assert once[0] != once[1]


def test_an_embedder_of_modules_is_no_reranker(tmp_path: Path) -> None:
    folder = write_modules(tmp_path, scores=False)
    with pytest.raises(RetrieverError, match=r"lacks classifier\.bias, classifier\.weight, so it ranks nothing"):
        Reranker(folder).load()
