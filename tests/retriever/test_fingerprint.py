from __future__ import annotations

import json
from pathlib import Path

import pytest
import xxhash

from retriever import RetrieverError
from retriever.fingerprint import HEAD, SAMPLE, WHOLE_UP_TO, _blocks, fingerprint

LARGE = WHOLE_UP_TO + 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "config.json").write_text('{"hidden_size": 384}')
    (model / "tokenizer.json").write_text("{}")
    (model / "1_Pooling" / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(LARGE))
    return model


def test_it_is_of_the_contents_and_not_of_the_place(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    assert fingerprint(moved) == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "1_Pooling/config.json"])
def test_any_change_of_a_small_file_counts(folder: Path, name: str) -> None:
    before = fingerprint(folder)
    (folder / name).write_text('{"x": 1}')
    assert fingerprint(folder) != before


@pytest.mark.parametrize("at", [0, HEAD - 1, HEAD + 5, LARGE - SAMPLE, LARGE - 1])
def test_weights_are_sampled_from_end_to_end(folder: Path, at: int) -> None:
    before = fingerprint(folder)
    weights = bytearray(LARGE)
    weights[at] = 1
    (folder / "model.safetensors").write_bytes(weights)
    assert fingerprint(folder) != before


def test_the_size_of_the_weights_counts(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "model.safetensors").write_bytes(bytes(LARGE + 1))
    assert fingerprint(folder) != before


def test_what_has_no_part_in_the_vectors_does_not_count(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "README.md").write_text("a card")
    (folder / ".gitattributes").write_text("")
    (folder / "model.onnx").write_bytes(b"the same again")
    assert fingerprint(folder) == before


def test_prompts_that_are_left_out_make_another_model_than_versions_before_had(folder: Path) -> None:
    """Of those models alone."""
    pooling, prompts = folder / "1_Pooling" / "config.json", folder / "config_sentence_transformers.json"
    ours = {}
    for included in (True, False):
        for prompt in ("", "query: "):
            pooling.write_text(json.dumps({"include_prompt": included}))
            prompts.write_text(json.dumps({"prompts": {"query": prompt, "document": ""}}))
            digest = xxhash.xxh3_128()
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
                for block in _blocks(path):
                    digest.update(block)
            ours[included, prompt] = fingerprint(folder) == digest.hexdigest()
    assert ours == {(True, ""): True, (True, "query: "): True, (False, ""): True, (False, "query: "): False}
    prompts.write_text("{torn")
    fingerprint(folder)


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="holds no embedding model"):
        fingerprint(tmp_path)
    with pytest.raises(RetrieverError, match="holds no embedding model"):
        fingerprint(tmp_path / "nowhere")
