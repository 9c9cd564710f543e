"""What linkers are compared with beside each other (Cache-Craft, sections 5.1 and 5.2.2): their names and settings.

They are no linkers: each has the model answer another prompt (substitution.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from benchmarks.choices import split_specs
from ragcache.errors import ConfigError
from ragcache.linking import LINKERS, make_linker
from ragcache.linking.base import Linker


@dataclass(frozen=True)
class PrefixSet:
    """SET-CACHE: the chunks in another order, which begins as an earlier prompt did."""

    name: ClassVar[str] = "set"


@dataclass(frozen=True)
class Compression:
    """As LINGUA2, without another model: of each chunk, the tokens that the model itself could foretell least."""

    name: ClassVar[str] = "compress"
    ratio: float = 0.12  # of each chunk's tokens

    def __post_init__(self) -> None:
        if not 0.0 < self.ratio <= 1.0:  # false for nan too
            raise ConfigError(f"baseline 'compress': ratio={self.ratio} is out of range: choose above 0, at most 1")


Baseline = PrefixSet | Compression
BASELINES: Mapping[str, type[Baseline]] = {baseline.name: baseline for baseline in (PrefixSet, Compression)}
Method = Linker | Baseline


def parse_methods(text: str, flag: str = "linkers") -> dict[str, Method]:
    """Linkers and baselines, by what was written."""
    return {spec: _method(spec) for spec in split_specs(text, flag)}


def _method(spec: str) -> Method:
    name, _, told = spec.partition(":")
    if name.strip() not in (*BASELINES, *LINKERS):
        raise ConfigError(f"unknown linker {name.strip()!r}: choose from {', '.join((*LINKERS, *BASELINES))}")
    if (baseline := BASELINES.get(name.strip())) is None:
        return make_linker(spec)
    return baseline(**_settings(baseline, told))


def _settings(baseline: type[Baseline], told: str) -> dict[str, float]:
    """All of them are numbers."""
    known = [field.name for field in fields(baseline)]
    found: dict[str, float] = {}
    for item in told.split(",") if told else ():
        key, _, number = (part.strip() for part in item.partition("="))
        if key not in known or key in found:
            choice = f"choose from {', '.join(known)}, each once" if known else "it takes none"
            raise ConfigError(f"baseline {baseline.name!r} cannot take {item.strip()!r}: {choice}")
        try:
            found[key] = float(number)
        except ValueError:
            raise ConfigError(f"baseline {baseline.name!r}: {key}={number!r} is no number") from None
    return found
