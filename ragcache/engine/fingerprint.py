"""What KV depends on: two engines may share caches if and only if their fingerprints are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import xxhash

# Config keys that leave KV as it is: where the model came from and what wrote it.
IRRELEVANT = {
    "_name_or_path",
    "_model_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "use_cache",
    "architectures",
    "_attn_implementation",
    "_attn_implementation_internal",
}
SCHEMA = "ragcache-kv-1"  # raised when our own KV changes meaning


def fingerprint(config: dict[str, Any], dtype: torch.dtype, weights: str, tokenizer: str) -> str:
    kept = {key: value for key, value in config.items() if key not in IRRELEVANT}
    text = json.dumps([SCHEMA, kept, str(dtype), weights, tokenizer], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_folder(folder: Path) -> tuple[str, str]:
    """(weights, tokenizer) of a model folder, from the bytes of its files."""
    return _digest_files(sorted(folder.glob("*.safetensors"))), _digest_files(sorted(folder.glob("tokenizer*")))


def _digest_files(paths: Iterable[Path]) -> str:
    hasher = xxhash.xxh3_128()
    for path in paths:
        hasher.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                hasher.update(block)
    return hasher.hexdigest()


def digest_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Weights of a model that has no folder (tests, in-memory models)."""
    hasher = xxhash.xxh3_128()
    for name, tensor in tensors:
        hasher.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        hasher.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()
