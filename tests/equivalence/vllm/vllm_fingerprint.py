"""What vLLM is started with decides the name of its KV: setups that differ in KV differ in name, others do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.arguments import engine_arguments
from ragcache.engine.vllm.setup import model_fingerprint
from ragcache.errors import ConfigError, ModelError
from tests.tiny import make_config, make_model

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model(make_config(head_dim=32)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def name(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> str:
    arguments = engine_arguments(folder, dtype, {}, {"max_model_len": 64, **options})
    return model_fingerprint(arguments.create_engine_config())


@pytest.mark.parametrize(
    "family", [("llama", "default"), ("llama", "llama3"), ("qwen2", "yarn"), ("qwen3", "default"), ("mistral", "yarn")]
)
def test_both_engines_name_a_folder_alike(tmp_path: Path, family: tuple[str, str]) -> None:
    make_model(make_config(*family, head_dim=32)).save_pretrained(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        assert name(tmp_path, dtype) == TorchEngine.from_folder(tmp_path, dtype, CPU).spec.fingerprint


@pytest.mark.parametrize(
    "options",
    [
        {"hf_overrides": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}},
        {"hf_overrides": {"rms_norm_eps": 1e-2}},
        {"hf_overrides": {"architectures": ["MistralForCausalLM"]}},
        {"hf_overrides": lambda config: config.update({"head_dim": 64}) or config},
    ],
    ids=["rope", "norm", "architecture", "function"],
)
def test_what_is_run_otherwise_has_another_name(folder: Path, options: dict[str, Any]) -> None:
    assert name(folder, **options) != name(folder)


def test_another_class_in_the_configuration_is_vllms_alone(folder: Path) -> None:
    before, path = name(folder), folder / "config.json"
    path.write_text(path.read_text().replace("LlamaForCausalLM", "MistralForCausalLM"))
    assert TorchEngine.from_folder(folder, torch.float32, CPU).spec.fingerprint == before, "runs what it ran"
    assert name(folder) != before


def test_a_configuration_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    make_config(head_dim=32).save_pretrained(tmp_path / "same")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "same" / "config.json").write_text(json.dumps(config))
    assert name(folder, hf_config_path=str(tmp_path / "same")) == name(folder)
    config["rope_parameters"]["rope_theta"] = 5000.0
    (tmp_path / "same" / "config.json").write_text(json.dumps(config))
    other = name(folder, hf_config_path=str(tmp_path / "same"))
    assert other != name(folder)
    assert other == name(folder, hf_overrides={"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}})


@pytest.mark.parametrize(
    "options",
    [
        {"enforce_eager": True},
        {"block_size": 64},
        {"max_model_len": 128},
        {"seed": 7},
        {"load_format": "safetensors"},
        {"served_model_name": "another"},
        {"hf_overrides": {"use_cache": False}},
        {"generation_config": "vllm"},
    ],
    ids=str,
)
def test_what_leaves_kv_as_it_is_leaves_the_name(folder: Path, options: dict[str, Any]) -> None:
    assert name(folder, **options) == name(folder)


@pytest.mark.parametrize("other", ["consolidated.safetensors", "more.safetensors"])
def test_files_that_vllm_alone_would_read_are_refused(folder: Path, other: str) -> None:
    save_file({key: value + 1 for key, value in load_file(folder / "model.safetensors").items()}, folder / other)
    with pytest.raises(ConfigError, match=f"vLLM reads .*{other}.* transformers model.safetensors"):
        name(folder)


def test_weights_of_another_format_are_refused(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights that can be read"):
        name(folder)
