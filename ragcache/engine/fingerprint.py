"""What KV depends on: two engines may share caches if and only if their fingerprints are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash

from ragcache.engine.digests import Digests, state
from ragcache.errors import ModelError

# Config keys that leave KV as it is: where the model came from and what wrote it.
IRRELEVANT = {
    "_name_or_path",
    "_model_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "use_cache",
    "architectures",  # transformers goes by the model type
    "_attn_implementation",
    "_attn_implementation_internal",
}
SCHEMA = "ragcache-kv-1"  # raised when our own KV changes meaning
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NAMED = "transformers_weights"


def fingerprint(config: dict[str, Any], dtype: torch.dtype, weights: str, tokenizer: str) -> str:
    kept = {key: value for key, value in config.items() if key not in IRRELEVANT}
    text = json.dumps([SCHEMA, kept, str(dtype), weights, tokenizer], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_fingerprint(
    folder: Path, dtype: torch.dtype, remembered: Digests | None = None, changes: dict[str, Any] | None = None
) -> str:
    """Of the model in a folder, without loading it. `changes`: what it is run with instead of its configuration's.

    Raises ModelError.
    """
    return fingerprint(read_config(folder) | (changes or {}), dtype, *digest_folder(folder, remembered))


def read_config(folder: Path) -> dict[str, Any]:
    """As transformers fills it in. Raises ModelError."""
    from transformers import AutoConfig

    try:
        config: dict[str, Any] = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        ).to_dict()
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"cannot read the configuration of the model in {folder}: {error}") from error
    return config


def digest_folder(folder: Path, remembered: Digests | None = None) -> tuple[str, str]:
    """(weights, tokenizer) of a model folder, from the bytes of the files that are read. Raises ModelError."""
    digests = remembered or Digests(None)
    try:
        return digests.of(weight_files(folder)), digests.of(sorted(folder.glob("tokenizer*")))
    except OSError as error:
        raise ModelError(f"cannot read the model in {folder}: {error}") from error


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Around all that reads a model: raises ModelError where its files are others afterwards than before. Named by the
    old and loaded from the new, one model would take the other's KV for its own.
    """
    before = model_state(folder)
    yield
    if model_state(folder) != before:
        raise ModelError(f"the files of the model in {folder} changed while they were read: start again")


def model_state(folder: Path) -> str:
    """Another one whenever a file is written that KV depends on. Raises ModelError."""
    try:
        return state([*weight_files(folder), *sorted(folder.glob("*.json")), *sorted(folder.glob("tokenizer*"))])
    except OSError as error:
        raise ModelError(f"cannot read the model in {folder}: {error}") from error


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers reads: one, or those of the index. Raises ModelError where there is none, or where
    they are not all of the weights.
    """
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"{folder} holds an adapter, which would change the weights: merge it into a model of its own")
    for path in sorted(folder.glob("config*.json")):  # transformers chooses one by its own version
        if (name := _named_weights(path)) is not None:
            raise ModelError(
                f"{path} names {name!r} as its weights ({NAMED}): rename them to {WEIGHTS} and drop the key"
            )
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        return [folder / name for name in indexed(folder)]
    raise ModelError(
        f"{folder} holds no weights that can be read: neither {WEIGHTS} nor {INDEX} (KV is named by their bytes; other "
        "formats, such as .bin and GGUF, must be converted to safetensors)"
    )


def _named_weights(config: Path) -> object:
    """What transformers reads before any other file; None where the configuration names nothing."""
    try:
        found = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):  # whoever loads it says so
        return None
    return found.get(NAMED) if isinstance(found, dict) else None


def indexed(folder: Path) -> list[str]:
    """The files that the index names, in order. Raises ModelError."""
    path = folder / INDEX
    try:
        names = sorted({str(name) for name in json.loads(path.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is no index of weights: get the model again") from error
    lacking = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
    if lacking or not names:
        raise ModelError(f"{path} names {lacking[0] if lacking else 'no file'}, which is not beside it: get it again")
    return names


def digest_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Weights of a model that has no folder (tests, in-memory models)."""
    hasher = xxhash.xxh3_128()
    for name, tensor in tensors:
        hasher.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        hasher.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()
