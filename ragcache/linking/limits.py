"""Checks of the linkers' settings. Each raises ConfigError with the linker, the field, its value and its range."""

from __future__ import annotations

import math

from ragcache.errors import ConfigError


def require_ratio(linker: str, field: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:  # false for nan too
        raise ConfigError(f"linker {linker!r}: {field}={value} is out of range: choose from 0 to 1")


def require_factor(linker: str, field: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise ConfigError(f"linker {linker!r}: {field}={value} is out of range: choose a finite number of at least 0")


def require_count(linker: str, field: str, value: int, least: int = 0) -> None:
    if value < least:
        raise ConfigError(f"linker {linker!r}: {field}={value} is out of range: choose at least {least}")
