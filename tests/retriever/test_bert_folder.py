"""A model read from its files alone against the same one read by the library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from app.models.folders import resolve_embedder
from retriever.bert import BertEncoder
from retriever.bert_folder import BertFolder, read_bert
from retriever.embedder import Embedder
from retriever.sentence_model import read_model
from tests.retriever.test_bert import TEXTS

FOLDER = resolve_embedder("bundled:minilm")
FILES = ("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
FILES += ("tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")


class ByLibrary(Embedder):
    def _read_model(self) -> Any:
        return read_model(self.folder)


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True])
def test_vectors_are_those_of_the_model_that_the_library_reads(narrow: bool) -> None:
    ours, theirs = Embedder(FOLDER, narrow=narrow), ByLibrary(FOLDER, narrow=narrow)
    assert ours.dimension == theirs.dimension
    np.testing.assert_array_equal(ours.embed(TEXTS), theirs.embed(TEXTS))
    np.testing.assert_array_equal(ours.embed_query(TEXTS[1]), theirs.embed_query(TEXTS[1]))


def copied(folder: Path) -> Path:
    """All but the weights, which are the package's own."""
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(FOLDER / name, folder / name)
    (folder / "model.safetensors").symlink_to(FOLDER / "model.safetensors")
    return folder


def changed(path: Path, change: Callable[[Any], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}),
        ("sentence_bert_config.json", {"max_seq_length": 12}),
        ("config.json", {"hidden_act": "gelu_new"}),
        ("config_sentence_transformers.json", {"prompts": {"query": "Question: ", "document": ""}}),
    ],
)
def test_what_the_files_say_is_done(tmp_path: Path, file: str, values: dict[str, Any]) -> None:
    folder = copied(tmp_path)
    changed(folder / file, lambda found: found.update(values))
    assert read_bert(folder) is not None
    ours, theirs = Embedder(folder), ByLibrary(folder)
    np.testing.assert_array_equal(ours.embed(TEXTS), theirs.embed(TEXTS))
    np.testing.assert_array_equal(ours.embed_query(TEXTS[1]), theirs.embed_query(TEXTS[1]))


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"architectures": ["BertForMaskedLM"]}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("config.json", {"is_decoder": True}),
        ("config.json", {"quantization_config": {}}),
        ("config.json", {"num_hidden_layers": 5}),
        ("config.json", {"hidden_size": 383}),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
        ("1_Pooling/config.json", {"include_prompt": False}),
        ("1_Pooling/config.json", {"word_embedding_dimension": 512}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("sentence_bert_config.json", {"max_seq_length": None}),
        ("sentence_bert_config.json", {"max_seq_length": 1024}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"padding_side": "left"}),
        ("tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer"}),
        ("tokenizer.json", {"normalizer": None}),
        ("tokenizer.json", {"added_tokens": []}),
    ],
)
def test_anything_unusual_is_left_to_the_library(tmp_path: Path, file: str, values: dict[str, Any]) -> None:
    folder = copied(tmp_path)
    assert read_bert(folder) is not None
    changed(folder / file, lambda found: found.update(values))
    assert read_bert(folder) is None


@pytest.mark.parametrize("file", [*FILES, "model.safetensors"])
@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_a_missing_or_broken_file_is_left_to_the_library(tmp_path: Path, file: str, content: str | None) -> None:
    folder = copied(tmp_path)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    assert read_bert(folder) is None


def test_more_parts_and_tokens_are_left_to_the_library(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "added_tokens.json").write_text("{}")
    assert read_bert(folder) is None
    (folder / "added_tokens.json").unlink()
    changed(folder / "modules.json", lambda parts: parts.append({"type": "sentence_transformers.models.Dense"}))
    assert read_bert(folder) is None


def test_weights_in_another_format_are_left_to_the_library(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file({name: weight.half() for name, weight in weights.items()}, folder / "model.safetensors")
    assert read_bert(folder) is None


def test_another_device_is_left_to_the_library() -> None:
    assert isinstance(Embedder(FOLDER)._read_model(), BertFolder)
    assert not isinstance(Embedder(FOLDER, "meta")._read_model(), BertFolder)


def test_the_model_is_read_without_gradients() -> None:
    model = read_bert(FOLDER)
    assert model is not None
    assert not any(weight.requires_grad for weight in model.parameters())
    assert BertEncoder(model).dimension == 384
    assert torch.is_grad_enabled()
