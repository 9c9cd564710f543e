"""Checks of the linkers' settings. Each raises ConfigError with the linker, the field, its value and its range."""

from __future__ import annotations

import math

from ragcache.errors import ConfigError

# More than any prompt or model has use for, and small enough that nothing overflows where it is computed with.
MOST_COUNT = 2**31 - 1
MOST_FACTOR = 1e6


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
