"""The settings of linkers: `name:key=value,key=value` as the typed fields of a dataclass, and what these may be.

Each `require_…` raises ConfigError with the linker, the field, its value and its range.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import get_args, get_type_hints

from ragcache.errors import ConfigError
from ragcache.linking.base import Linker

Value = bool | int | float | str | None

LONGEST = 200  # characters of a spec: whoever asks a server chooses them
# ASCII alone: Python would read digits of every script, and underscores between them.
NUMBERS = {
    int: re.compile(r"[+-]?[0-9]+"),
    float: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|[+-]?inf"),
}
# More than any prompt or model has use for, and small enough that nothing overflows where it is computed with.
MOST_COUNT = 2**31 - 1
MOST_FACTOR = 1e6


def linker_spec(linker: Linker) -> str:
    """What describes one of the registry: `make_linker` of this is equal to it."""
    if not is_dataclass(linker):
        raise ConfigError(f"linker {linker!r} is no dataclass: its fields are its settings")
    given = {field.name: getattr(linker, field.name) for field in fields(linker) if field.init}
    defaults = {field.name: field.default for field in fields(linker)}
    told = [f"{name}={_written(value)}" for name, value in given.items() if value != defaults[name]]
    return f"{linker.name}:{','.join(told)}" if told else linker.name


def _written(value: Value) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name and the settings as written."""
    if len(spec) > LONGEST:
        raise ConfigError(f"linker {spec[:40]!r}… has {len(spec):,} characters: use at most {LONGEST}")
    name, colon, rest = spec.partition(":")
    settings: dict[str, str] = {}
    for item in rest.split(",") if colon else []:
        key, equals, text = (part.strip() for part in item.partition("="))
        if not (key and equals and text):
            raise ConfigError(f"linker {spec!r}: {item!r} is no setting; write name:key=value,key=value")
        if key in settings:
            raise ConfigError(f"linker {spec!r}: setting {key!r} is given twice; give it once")
        settings[key] = text
    return name.strip(), settings


def typed_settings(name: str, linker: type[Linker], settings: dict[str, str]) -> dict[str, Value]:
    """The settings, typed as the fields. Raises ConfigError for an unknown field or a value it cannot hold."""
    assert is_dataclass(linker), linker
    hints = get_type_hints(linker)
    known = [field.name for field in fields(linker) if field.init]
    values: dict[str, Value] = {}
    for key, text in settings.items():
        if key not in known:
            choice = f"choose from {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"linker {name!r} has no setting {key!r} (={text!r}): {choice}")
        kinds: tuple[type, ...] = get_args(hints[key]) or (hints[key],)
        try:
            values[key] = _value(text, kinds)
        except ValueError:
            wanted = " or ".join("none" if kind is NoneType else kind.__name__ for kind in kinds)
            raise ConfigError(f"linker {name!r}: {key}={text!r} is not of type {wanted}") from None
    return values


def _value(text: str, kinds: tuple[type, ...]) -> Value:
    """`text` as the first of `kinds` that can hold it; ValueError when none can."""
    for kind in kinds:
        if kind is NoneType and text == "none":
            return None
        if kind is bool and text in ("true", "false"):
            return text == "true"
        if kind is str:
            return text
        if kind in NUMBERS and NUMBERS[kind].fullmatch(text):
            return int(text) if kind is int else float(text)
    raise ValueError(text)


def require_ratio(linker: str, field: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:  # false for nan too
        raise ConfigError(f"linker {linker!r}: {field}={value} is out of range: choose from 0 to 1")


def require_factor(linker: str, field: str, value: float) -> None:
    if not (math.isfinite(value) and 0.0 <= value <= MOST_FACTOR):
        raise ConfigError(f"linker {linker!r}: {field}={value} is out of range: choose from 0 to {MOST_FACTOR:,.0f}")


def require_count(linker: str, field: str, value: int, least: int = 0) -> None:
    if not least <= value <= MOST_COUNT:
        raise ConfigError(
            f"linker {linker!r}: {field}={value} is out of range: choose at least {least}, at most {MOST_COUNT:,}"
        )
