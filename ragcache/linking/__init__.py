"""Linkers by name, with their settings: `name:key=value,key=value` as the typed fields of a dataclass.

A new one is a file here, an import and a line in LINKERS, and a row in tests/linkers.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import get_args, get_type_hints

from ragcache.errors import ConfigError
from ragcache.linking.auto import Auto, Fast
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full, HeavyHitters, Naive, Random
from ragcache.linking.boundary import Boundary, FirstTokens
from ragcache.linking.cacheblend import CacheBlend
from ragcache.linking.cci import ContextImpact
from ragcache.linking.query import Query

Value = bool | int | float | str | None

LONGEST = 200  # characters of a spec: whoever asks a server chooses them
# ASCII alone: Python would read digits of every script, and underscores between them.
NUMBERS = {
    int: re.compile(r"[+-]?[0-9]+"),
    float: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|[+-]?inf"),
}

LINKERS: Mapping[str, type[Linker]] = {
    linker.name: linker
    for linker in (
        Auto,
        Fast,
        Full,
        Naive,
        FirstTokens,
        Boundary,
        ContextImpact,
        CacheBlend,
        Query,
        Random,
        HeavyHitters,
    )
}


def make_linker(spec: str) -> Linker:
    """The linker that `name` or `name:key=value,key=value` describes. Raises ConfigError for what it does not know."""
    name, settings = _parsed(spec)
    if name not in LINKERS:
        raise ConfigError(f"unknown linker {name!r}: choose from {', '.join(LINKERS)}")
    linker = LINKERS[name]
    return linker(**typed_settings(name, linker, settings))


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


def _parsed(spec: str) -> tuple[str, dict[str, str]]:
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
