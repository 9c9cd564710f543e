"""Lists and names on the command line: each reader takes what was written and the flag's name."""

from __future__ import annotations

import re
from collections.abc import Callable

from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.linking.base import Linker

# How many chunks before it in its document each chunk is computed behind.
CONTEXTS = {"alone": 0, "document": 3}
SETTING = re.compile(r"\s*\w+\s*=")


def parse_linkers(text: str, flag: str = "linkers") -> dict[str, Linker]:
    """By what was written."""
    return {spec: make_linker(spec) for spec in split_specs(text, flag)}


def split_specs(text: str, flag: str) -> tuple[str, ...]:
    """`full,query:first=8,ratio=0.1` is two linkers: a linker's settings have commas too."""
    specs: list[str] = []
    for item in text.split(","):
        if specs and ":" in specs[-1] and SETTING.match(item) and ":" not in item:
            specs[-1] += f",{item}"
        else:
            specs.append(item)
    return _distinct(specs, flag)


def parse_linker(text: str, flag: str) -> str:
    """As it was written. A wrong one is said before anything is measured."""
    make_linker(text)
    return text


def one_of(*known: str) -> Callable[[str, str], str]:
    def read(text: str, flag: str) -> str:
        if text not in known:
            raise ConfigError(f"unknown {flag.removesuffix('s')} {text!r}: choose from {', '.join(known)}")
        return text

    return read


def some_of(*known: str) -> Callable[[str, str], tuple[str, ...]]:
    one = one_of(*known)
    return lambda text, flag: tuple(one(name, flag) for name in parse_names(text, flag))


def parse_names(text: str, flag: str) -> tuple[str, ...]:
    return _distinct(text.split(","), flag)


def parse_percents(text: str, flag: str) -> tuple[int, ...]:
    names = parse_names(text, flag)
    if not all(name.isdecimal() and int(name) <= 100 for name in names):
        raise ConfigError(f"--{flag} {text!r}: give numbers from 0 to 100, with commas between them")
    return tuple(map(int, names))


def parse_numbers(text: str, flag: str) -> tuple[int, ...]:
    names = parse_names(text, flag)
    if not all(name.isdecimal() and int(name) > 0 for name in names):
        raise ConfigError(f"--{flag} {text!r}: give numbers above 0, with commas between them")
    return tuple(map(int, names))


def parse_positive(text: str, flag: str) -> tuple[float, ...]:
    try:
        found = tuple(float(one) for one in parse_names(text, flag))
    except ValueError as error:
        raise ConfigError(f"--{flag} {text!r}: give numbers such as 0.5,1,2") from error
    if not all(0 < one < float("inf") for one in found):
        raise ConfigError(f"--{flag} {text!r}: give numbers above 0")
    return found


def _distinct(items: list[str], flag: str) -> tuple[str, ...]:
    stripped = [item.strip() for item in items]
    if not all(stripped):
        raise ConfigError(f"--{flag} {','.join(items)!r} has an empty item: put one comma between two names")
    return tuple(dict.fromkeys(stripped))
