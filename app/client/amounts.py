"""Sizes, times and numbers as people say them, here and on the page: one unit each, whoever tells them."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
STEP = 1024  # of one unit in the next


def size(nbytes: float) -> str:
    """`1.4 MiB`."""
    value, unit = float(nbytes), 0
    while value >= STEP and unit < len(UNITS) - 1:
        value, unit = value / STEP, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:,.1f} {UNITS[unit]}"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 chunk`, `2,000 chunks`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`1 s` at least."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
