"""A model built from its weights by what an earlier load has recorded, against that load."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import ragcache.engine.torch.engine as module
import ragcache.engine.torch.loading as loading
from ragcache.engine import EngineSpec
from ragcache.engine.torch.blueprint import LARGEST, Blueprint, read_blueprint
from ragcache.engine.torch.decoder import Decoder
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from ragcache.records import Records
from tests.tiny import Tiny, draw, make_config, make_model, make_tiny

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16)


def logits(engine: TorchEngine) -> torch.Tensor:
    ids = draw(40, 1)
    return engine.logits(engine.compute(ids, range(40), engine.buffer(40), keep=40))


def load(folder: Path, records: Records, dtype: torch.dtype = torch.float32) -> TorchEngine:
    return TorchEngine.from_folder(folder, dtype, CPU, records)


def known(folder: Path, records: Records, dtype: torch.dtype = torch.float32) -> bool:
    return read_blueprint(records, folder, dtype, CPU) is not None


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tiny().model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the model is loaded by transformers")

    monkeypatch.setattr(loading, "load_pretrained", refused)


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True])
def test_files_that_change_while_they_are_read_are_refused(
    folder: Path, tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """Or KV would be named by the old weights and computed by the new, by every later start with the record too."""
    make_model(make_config(), 5).save_pretrained(tmp_path / "other")
    if recorded:
        load(folder, records)
    step = "read_blueprint" if recorded else "digest_folder"
    real = getattr(module, step)

    def racing(*arguments: Any) -> Any:
        found = real(*arguments)
        shutil.copy(tmp_path / "other" / "model.safetensors", folder / "new")
        (folder / "new").replace(folder / "model.safetensors")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(module, step, racing)
        with pytest.raises(ModelError, match="changed while they were read"):
            load(folder, records)
    assert load(folder, records).spec.fingerprint == load(folder, Records(tmp_path / "none")).spec.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_family_is_built_bit_by_bit(
    every_tiny: Tiny, tmp_path: Path, records: Records, dtype: torch.dtype
) -> None:
    every_tiny.model.save_pretrained(tmp_path / "model")
    first = load(tmp_path / "model", records, dtype)
    found = read_blueprint(records, tmp_path / "model", dtype, CPU)
    assert found is not None
    second = TorchEngine(*found, first.stock)
    assert second.spec == first.spec
    assert torch.equal(logits(second), logits(first))


def test_biases_and_untied_heads(tmp_path: Path, records: Records) -> None:
    model = make_model(make_config("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=False))
    model.save_pretrained(tmp_path / "model", max_shard_size="40KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    first = load(tmp_path / "model", records)
    assert known(tmp_path / "model", records)
    assert torch.equal(logits(load(tmp_path / "model", records)), logits(first))


@pytest.mark.usefixtures("no_transformers")
def test_it_is_not_used_where_there_is_no_record(folder: Path, records: Records) -> None:
    with pytest.raises(AssertionError, match="by transformers"):
        load(folder, records)


@pytest.mark.slow
def test_the_second_load_needs_no_transformers(folder: Path, records: Records, request: pytest.FixtureRequest) -> None:
    load(folder, records)
    request.getfixturevalue("no_transformers")
    engine = load(folder, records)
    with pytest.raises(AssertionError, match="by transformers"):
        engine.stock()


def test_the_self_check_still_has_the_model_of_transformers(folder: Path, records: Records) -> None:
    load(folder, records)
    out = load(folder, records).stock()(torch.tensor([draw(40, 1)]))
    assert out.logits.shape == (1, 40, 199)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_was_changed_is_checked_again(folder: Path, records: Records, file: str) -> None:
    (folder / "tokenizer.json").write_text("{}")
    load(folder, records)
    assert known(folder, records)
    (folder / file).write_bytes((folder / file).read_bytes() + b" " * (file != "model.safetensors"))
    os.utime(folder / file, ns=(1, 1))
    assert not known(folder, records)


def test_another_number_format_is_another_model(folder: Path, records: Records) -> None:
    load(folder, records)
    assert not known(folder, records, torch.bfloat16)


def test_a_record_that_is_broken_is_as_good_as_none(folder: Path, records: Records) -> None:
    load(folder, records)
    (path,) = records.root.iterdir()
    kept = json.loads(path.read_text())
    del kept["values"]["eps"]
    path.write_text(json.dumps(kept))
    assert not known(folder, records)
    load(folder, records)
    assert known(folder, records)


def test_another_layout_goes_the_long_way(tmp_path: Path, records: Records) -> None:
    make_model(make_config("llama", hidden_act="gelu")).save_pretrained(tmp_path / "model")
    load(tmp_path / "model", records)
    assert not known(tmp_path / "model", records)


def test_a_large_model_is_not_held_twice(folder: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LARGEST >= 1 << 30
    monkeypatch.setattr("ragcache.engine.torch.blueprint.LARGEST", 1000)
    load(folder, records)
    assert not known(folder, records)


@pytest.mark.parametrize("changes", [{"scale": 0.26}, {"eps": 1e-3}, {"scaling": 1.1}, {"heads": 2}, {"layers": 2}])
def test_what_computes_otherwise_is_not_recorded(
    folder: Path, records: Records, monkeypatch: pytest.MonkeyPatch, changes: dict[str, float]
) -> None:
    right = Blueprint.of

    def wrong(model: PreTrainedModel, decoder: Decoder, spec: EngineSpec) -> Blueprint:
        found = right(model, decoder, spec)
        assert found is not None
        return replace(found, **changes)

    monkeypatch.setattr(Blueprint, "of", wrong)
    load(folder, records)
    assert not known(folder, records)
