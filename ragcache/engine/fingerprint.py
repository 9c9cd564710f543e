"""What KV depends on: two engines may share caches if and only if their fingerprints are equal.

Checksums of model files are remembered: reading gigabytes to name a model takes as long as loading it. A file counts as
unchanged while its place, inode, size and times are; any write moves `st_ctime`, which no program can set. A file that
was changed within the last moments is not remembered, since its times could hide another change.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import xxhash

from ragcache.errors import ModelError
from ragcache.host import private_folder

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
KEPT = 64  # checksums; the oldest go first
SETTLED_NS = 2_000_000_000  # clocks of file systems tick this coarsely at worst


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


class Digests:
    """Threads and processes may share the file: whoever writes last leaves a whole one; what got lost is read again."""

    def __init__(self, file: Path | None):
        """None remembers nothing."""
        self._file = file

    def of(self, paths: Sequence[Path]) -> str:
        """Of the names and the bytes. Raises OSError."""
        before = state(paths)
        known = self._known()
        if before in known:
            return known[before]
        digest = _digest(paths)
        settled = all(time.time_ns() - path.stat().st_ctime_ns > SETTLED_NS for path in paths)
        if settled and state(paths) == before:
            self._remember({**known, before: digest})
        return digest

    def _known(self) -> dict[str, str]:
        try:
            found = {} if self._file is None else json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}

    def _remember(self, known: dict[str, str]) -> None:
        """A folder that cannot be written costs a reading each time, no more."""
        if self._file is None:
            return
        kept = dict(list(known.items())[-KEPT:])
        with suppress(OSError):
            private_folder(self._file.parent)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}-")
            with os.fdopen(handle, "w") as new:
                json.dump(kept, new)
            Path(name).replace(self._file)


def state(paths: Sequence[Path]) -> str:
    """Another one whenever any of the files is written. Raises OSError."""
    facts = []
    for path in paths:
        found = path.stat()
        times = (found.st_mtime_ns, found.st_ctime_ns)
        facts.append([str(path.absolute()), found.st_dev, found.st_ino, found.st_size, *times])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _digest(paths: Sequence[Path]) -> str:
    hasher = xxhash.xxh3_128()
    for path in paths:
        hasher.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                hasher.update(block)
    return hasher.hexdigest()
