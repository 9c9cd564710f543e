"""Which embedding model a folder holds, told without reading all of its weights.

Small files (settings, tokenizer, the parts of the model) count whole; of a large one its size, its head (for
safetensors the names and shapes of all tensors) and samples throughout. Two trainings of one model differ in nearly
every number, so samples tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xxhash

from retriever import RetrieverError

WHOLE_UP_TO = 1 << 22  # bytes
HEAD = 1 << 16
SAMPLES = 64
SAMPLE = 1 << 12
PROMPTS = "config_sentence_transformers.json"
# What says nothing of the vectors: a model card, what the training left, other formats of the same weights.
LEFT_OUT = {".md", ".onnx", ".h5", ".ot", ".msgpack", ".png", ".py", ".pyc"}


def fingerprint(folder: Path) -> str:
    """Raises RetrieverError where there is no model to read."""
    digest = xxhash.xxh3_128()
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and _counts(path, folder))
        for path in paths:
            digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
            for block in _blocks(path):
                digest.update(block)
        if _leaves_prompts_out(paths):
            digest.update(b"prompts left out")  # versions before took them in, so those vectors are of another model
    except OSError as error:
        raise RetrieverError(f"cannot read the embedding model in {folder}: {error}") from error
    if not paths:
        raise RetrieverError(f"{folder} holds no embedding model: it is empty or not there")
    return digest.hexdigest()


def _leaves_prompts_out(paths: Sequence[Path]) -> bool:
    """Whether there are prompts, which have no part in the vectors of the texts behind them."""
    told = [_settings(path) for path in paths if path.name in ("config.json", PROMPTS)]
    prompted = any(isinstance(one.get("prompts"), dict) and any(one["prompts"].values()) for one in told)
    return prompted and any(one.get("include_prompt") is False for one in told)


def _settings(path: Path) -> dict[str, Any]:
    if path.stat().st_size > WHOLE_UP_TO:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}  # whoever loads the model tells
    return found if isinstance(found, dict) else {}


def _counts(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return not hidden and path.suffix not in LEFT_OUT


def _blocks(path: Path) -> list[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_UP_TO:
            return [file.read()]
        blocks = [file.read(HEAD)]
        for number in range(SAMPLES):
            file.seek(HEAD + (size - HEAD - SAMPLE) * number // (SAMPLES - 1))
            blocks.append(file.read(SAMPLE))
        return blocks
