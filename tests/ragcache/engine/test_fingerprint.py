"""Each row of the table in docs/design.md: what names KV, and what does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file

from ragcache.engine.fingerprint import INDEX, IRRELEVANT, SCHEMA, WEIGHTS, folder_fingerprint, read_config
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from tests.tiny import Tiny, make_config, make_model, make_tiny

Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model(make_config()).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def shard(folder: Path) -> None:
    make_model(make_config()).save_pretrained(folder, max_shard_size="100KB")
    (folder / WEIGHTS).unlink()
    assert len(list(folder.glob("*.safetensors"))) > 1


def name(folder: Path, dtype: torch.dtype = torch.float32) -> str:
    return folder_fingerprint(folder, dtype)


def edit(**changes: object) -> Change:
    def write(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return write


def fine_tune(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.norm.weight"][0] += 1e-6
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


COUNTS: dict[str, Change] = {
    "a fine-tune with the same configuration": fine_tune,
    "rope theta": edit(rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "attention scale": edit(attention_multiplier=0.5),
    "norm": edit(rms_norm_eps=1e-3),
    "quantised": edit(quantization_config={"quant_method": "awq", "bits": 4}),
    "tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{ }"),
    "other weights in shards": shard,
}
DOES_NOT: dict[str, Change] = {
    "who wrote it": edit(transformers_version="1.0", _name_or_path="other"),
    "number format of the file": edit(dtype="bfloat16"),
    "a class that transformers does not go by": edit(architectures=["MistralForCausalLM"]),
    "how answers are sampled": lambda folder: (folder / "generation_config.json").write_text('{"temperature": 2}'),
    "weights that nobody reads": lambda folder: (folder / "pytorch_model.bin").write_bytes(b"?"),
}


@pytest.mark.parametrize("row", COUNTS)
def test_what_counts(folder: Path, row: str) -> None:
    before = name(folder)
    COUNTS[row](folder)
    assert name(folder) != before


@pytest.mark.parametrize("row", DOES_NOT)
def test_what_does_not(folder: Path, row: str) -> None:
    before = name(folder)
    DOES_NOT[row](folder)
    assert name(folder) == before


def test_the_number_format_that_is_run_counts(folder: Path) -> None:
    assert name(folder) != name(folder, torch.bfloat16)


def test_an_index_counts_by_the_files_it_names(folder: Path) -> None:
    shard(folder)
    first = name(folder)
    index = json.loads((folder / INDEX).read_text())
    shards = sorted(set(index["weight_map"].values()))
    (folder / INDEX).write_text(json.dumps({"weight_map": index["weight_map"]}))
    assert name(folder) == first, "the same shards"
    (folder / "other.safetensors").write_bytes((folder / shards[-1]).read_bytes())
    assert name(folder) == first, "nobody reads it"
    index["weight_map"] = {
        key: file.replace(shards[-1], "other.safetensors") for key, file in index["weight_map"].items()
    }
    (folder / INDEX).write_text(json.dumps(index))
    assert name(folder) != first


def test_caches_keep_their_names(folder: Path) -> None:
    """The name as it was before it was told which files are read: of all safetensors and of the configuration."""
    for prepare in (lambda folder: None, shard):
        prepare(folder)
        hashers = []
        for pattern in ("*.safetensors", "tokenizer*"):
            hashers.append(xxhash.xxh3_128())
            for path in sorted(folder.glob(pattern)):
                hashers[-1].update(path.name.encode() + path.read_bytes())
        config = {key: value for key, value in read_config(folder).items() if key not in IRRELEVANT}
        text = json.dumps(
            [SCHEMA, config, "torch.float32", *(hasher.hexdigest() for hasher in hashers)], sort_keys=True
        )
        assert name(folder) == hashlib.sha256(text.encode()).hexdigest()


def test_the_engine_names_itself_so(folder: Path) -> None:
    engine = TorchEngine.from_folder(folder, torch.float32, torch.device("cpu"))
    assert engine.spec.fingerprint == name(folder)


UNREADABLE: dict[str, tuple[Change, str]] = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "no weights that can be read"),
    "a pickle alone": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
        "no weights that can be",
    ),
    "GGUF alone": (lambda folder: (folder / WEIGHTS).rename(folder / "model.gguf"), "no weights that can be read"),
    "an adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "holds an adapter"),
    "other weights by name": (edit(transformers_weights="tuned.safetensors"), "names 'tuned.safetensors' as its"),
    "other weights in the configuration of a version": (
        lambda folder: (folder / "config.4.0.0.json").write_text('{"transformers_weights": "x.safetensors"}'),
        "names 'x.safetensors' as its weights",
    ),
    "a directory": (lambda folder: ((folder / WEIGHTS).unlink(), (folder / WEIGHTS).mkdir()), "cannot read the model"),
}
BROKEN_INDEX = ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": "gone.safetensors"}}',
                '{"weight_map": {"a": "../model.safetensors"}}', '{"weight_map": 3}']  # fmt: skip


@pytest.mark.parametrize("row", UNREADABLE)
def test_weights_that_cannot_be_read_are_refused(folder: Path, row: str) -> None:
    spoil, reason = UNREADABLE[row]
    spoil(folder)
    for engine in (name, lambda folder: TorchEngine.from_folder(folder, torch.float32, torch.device("cpu"))):
        with pytest.raises(ModelError, match=reason):
            engine(folder)


@pytest.mark.parametrize("content", BROKEN_INDEX)
def test_an_index_that_is_none(folder: Path, content: str) -> None:
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(content)
    with pytest.raises(ModelError, match=r"is no index of weights|which is not beside it"):
        name(folder)


@pytest.mark.slow
def test_models_in_memory_are_told_apart_by_what_a_program_changed() -> None:
    def changed(change: Callable[[Tiny], object]) -> str:
        tiny = make_tiny()
        change(tiny)
        return TorchEngine.from_model(tiny.model).spec.fingerprint

    def rescale(tiny: Tiny) -> None:
        for layer in tiny.model.model.layers:
            layer.self_attn.scaling = 0.2

    def renorm(tiny: Tiny) -> None:
        tiny.model.model.norm.variance_epsilon = 1e-2

    names = [changed(change) for change in (lambda tiny: None, rescale, renorm)]
    assert len(set(names)) == 3
    assert changed(lambda tiny: None) == names[0]
