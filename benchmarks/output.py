"""What every benchmark leaves: a JSON file for programs and a table for people."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ragcache.errors import ConfigError

if TYPE_CHECKING:  # a benchmark of ragcache alone runs where the application's libraries are not
    from app.models.loading import LoadedModel

LIBRARIES = ("ragcache-kv", "torch", "transformers", "sentence-transformers", "numpy")
Value = str | int | float | None
Row = Mapping[str, Value]


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


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
    out: Path | None,
    more: Mapping[str, Any] | None = None,
    hidden: Collection[str] = (),
) -> None:
    """The rows as a table to stdout, but for `hidden` columns; everything to `out`, `more` among it."""
    print(render(rows, hidden))  # first: it is there whatever becomes of the file
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


def write_json(out: Path, document: Mapping[str, Any]) -> None:
    """Numbers that JSON does not have (nan, inf) are null."""
    beside = out.with_name(f"{out.name}.new")
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error}; name another place with --json") from error


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render(rows: Sequence[Row], hidden: Collection[str] = ()) -> str:
    """A header, a rule and a line per row; texts to the left, numbers to the right."""
    columns = [name for name in rows[0] if name not in hidden]
    cells = [[shown(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    numeric = [any(isinstance(row[column], int | float) for row in rows) for column in columns]

    def line(texts: Sequence[str]) -> str:
        pairs = zip(texts, widths, numeric, strict=True)
        return "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in pairs).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *(line(row) for row in cells)])


def shown(value: Value) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
