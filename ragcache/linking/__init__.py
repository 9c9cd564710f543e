"""Linkers by name. A new one is a file here, a line in LINKERS and a row in tests/contract/test_linkers.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from ragcache.errors import ConfigError
from ragcache.linking.base import Linker
from ragcache.linking.spec import parse_spec, typed_settings


def _linker(module: str, linker: str) -> type[Linker]:
    found: object = getattr(import_module(f"ragcache.linking.{module}"), linker)
    assert isinstance(found, type), found
    assert issubclass(found, Linker), found
    return found


LINKERS: Mapping[str, Callable[[], type[Linker]]] = {
    "auto": partial(_linker, "auto", "Auto"),
    "fast": partial(_linker, "auto", "Fast"),
    "full": partial(_linker, "baselines", "Full"),
    "naive": partial(_linker, "baselines", "Naive"),
    "first_tokens": partial(_linker, "boundary", "FirstTokens"),
    "boundary": partial(_linker, "boundary", "Boundary"),
    "cci": partial(_linker, "cci", "ContextImpact"),
    "cacheblend": partial(_linker, "cacheblend", "CacheBlend"),
    "query": partial(_linker, "query", "Query"),
    "random": partial(_linker, "baselines", "Random"),
    "h2o": partial(_linker, "baselines", "HeavyHitters"),
}


def make_linker(spec: str) -> Linker:
    """The linker that `name` or `name:key=value,key=value` describes. Raises ConfigError for what it does not know."""
    name, settings = parse_spec(spec)
    if name not in LINKERS:
        raise ConfigError(f"unknown linker {name!r}: choose from {', '.join(LINKERS)}")
    linker = LINKERS[name]()
    return linker(**typed_settings(name, linker, settings))
