"""What every benchmark leaves: a JSON file for programs and a table for people."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from app.loading import LoadedModel
from benchmarks.table import Row, render
from ragcache.errors import ConfigError

LIBRARIES = ("ragcache-kv", "torch", "transformers", "sentence-transformers", "numpy")


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def common_settings(parts: LoadedModel) -> dict[str, Any]:
    """What the figures of every benchmark depend on."""
    spec, settings = parts.engine.spec, parts.settings
    return {
        "model": settings.model,
        "fingerprint": spec.fingerprint,
        "engine": parts.engine.name,
        "device": str(spec.device),
        "dtype": str(spec.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "system": parts.template.system().hash,
    }


def publish(
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    columns: Sequence[str],
    out: Path | None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """The table to stdout, everything to `out`, `more` among it."""
    if out is not None:
        # The last argument that names the program may be a path of this machine; the words after it are the command.
        document = {
            "command": " ".join(["ragcache", *sys.argv[1:]]),
            "versions": versions(),
            "settings": dict(settings),
            "rows": list(rows),
            **(more or {}),
        }
        write_json(out, document)
    print(render(rows, columns))


def write_json(out: Path, document: Mapping[str, Any]) -> None:
    beside = out.with_name(f"{out.name}.new")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error}; name another place with --json") from error
