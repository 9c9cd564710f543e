"""Lists on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.caches import CONTEXTS
from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.linking.base import Linker

SETTING = re.compile(r"\s*\w+\s*=")


def parse_linkers(text: str) -> dict[str, Linker]:
    """`full,query:first=8,ratio=0.1` is two linkers, by what was written: a linker's settings have commas too."""
    specs: list[str] = []
    for item in text.split(","):
        if specs and ":" in specs[-1] and SETTING.match(item) and ":" not in item:
            specs[-1] += f",{item}"
        else:
            specs.append(item)
    return {spec: make_linker(spec) for spec in _distinct(specs, "linkers")}


def parse_contexts(text: str) -> tuple[str, ...]:
    return parse_names(text, "context", tuple(CONTEXTS))


def parse_names(text: str, flag: str, known: Sequence[str]) -> tuple[str, ...]:
    names = _distinct(text.split(","), flag)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"unknown {flag} {unknown[0]!r}: choose from {', '.join(known)}")
    return names


def parse_percents(text: str, flag: str) -> tuple[int, ...]:
    names = _distinct(text.split(","), flag)
    if not all(name.isdecimal() and int(name) <= 100 for name in names):
        raise ConfigError(f"--{flag} {text!r}: give numbers from 0 to 100, with commas between them")
    return tuple(int(name) for name in names)


def parse_numbers(text: str, flag: str) -> tuple[int, ...]:
    names = _distinct(text.split(","), flag)
    if not all(name.isdecimal() and int(name) > 0 for name in names):
        raise ConfigError(f"--{flag} {text!r}: give numbers above 0, with commas between them")
    return tuple(int(name) for name in names)


def _distinct(items: list[str], flag: str) -> tuple[str, ...]:
    stripped = [item.strip() for item in items]
    if not all(stripped):
        raise ConfigError(f"--{flag} {','.join(items)!r} has an empty item: put one comma between two names")
    return tuple(dict.fromkeys(stripped))


def known_settings(linkers: Mapping[str, Linker]) -> dict[str, str]:
    """Each linker with all its settings, those by default too: what its figures are of."""
    return {spec: repr(linker) for spec, linker in linkers.items()}
