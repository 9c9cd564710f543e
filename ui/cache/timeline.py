"""What answers had of the cache over time: columns in plain HTML, and the same as a table for who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.client.amounts import count

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Period:
    """Of so many columns, each so many `seconds` long, made of the server's steps."""

    name: str
    step: str
    seconds: int
    columns: int
    label: str  # of a column, as strftime has it


PERIODS = (
    Period("3 hours", "minute", 300, 36, "%H:%M"),
    Period("2 days", "hour", 3600, 48, "%a %H:%M"),
    Period("2 weeks", "hour", 6 * 3600, 56, "%d %b %H:%M"),
    Period("A year", "day", 7 * 86_400, 57, "%d %b %Y"),
)


@dataclass(frozen=True)
class Column:
    start: int
    answers: int = 0
    reused: int = 0
    repaired: int = 0
    computed: int = 0
    measured: float = 0.0
    estimated: float = 0.0
    known: int = 0  # answers whose saving is measured or estimated

    @property
    def hit_rate(self) -> float | None:
        tokens = self.reused + self.repaired + self.computed
        return (self.reused + self.repaired) / tokens if tokens else None

    def plus(self, point: Record) -> Column:
        return Column(
            self.start,
            self.answers + point["answers"],
            self.reused + point["reused"],
            self.repaired + point["repaired"],
            self.computed + point["computed"],
            self.measured + point["measured"]["seconds"],
            self.estimated + point["estimated"]["seconds"],
            self.known + point["measured"]["answers"] + point["estimated"]["answers"],
        )


def columns(points: Sequence[Record], period: Period, now: float) -> list[Column]:
    """The last ones, up to that which `now` is in, also those in which nothing was."""
    last = int(now) // period.seconds * period.seconds
    first = last - (period.columns - 1) * period.seconds
    found = {start: Column(start) for start in range(first, last + 1, period.seconds)}
    for point in points:
        start = int(point["start"]) // period.seconds * period.seconds
        if start in found:
            found[start] = found[start].plus(point)
    return list(found.values())


def zone(name: str | None) -> tzinfo:
    """Of the browser, as it names it."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def drawn(found: Sequence[Column], period: Period, where: tzinfo) -> str:
    """Two rows of columns over one time, and a table of those in which anything was."""
    most = max((max(abs(one.estimated), abs(one.measured)) for one in found), default=0.0)
    rates = _row("Hit rate", "100%", found, lambda one: _rate(one), period, where)
    if not any(one.known for one in found):
        return f"{rates}{_ends(found, period, where)}{_table(found, period, where)}"
    saved = _row("Seconds saved", f"{most:,.1f} s", found, lambda one: _saved(one, most), period, where)
    key = (
        '<p class="rc-kv-key"><span class="rc-kv-estimated"></span>estimated'
        '<span class="rc-kv-measured"></span>measured<span class="rc-kv-later"></span>later, not sooner</p>'
    )
    return f"{rates}{saved}{key}{_ends(found, period, where)}{_table(found, period, where)}"


def _row(
    name: str,
    top: str,
    found: Sequence[Column],
    inside: Callable[[Column], str],
    period: Period,
    where: tzinfo,
) -> str:
    shown = "".join(
        f'<div class="rc-kv-column" title="{_told(one, period, where)}">{inside(one)}</div>' for one in found
    )
    return (
        f'<div class="rc-kv-chart"><span class="rc-kv-axis"><span>{name}</span><span>{top}</span></span>'
        f'<div class="rc-kv-columns" role="img" aria-label="{name} over time; the table below has the numbers">'
        f"{shown}</div></div>"
    )


def _rate(one: Column) -> str:
    rate = one.hit_rate
    return "" if rate is None else f'<i class="rc-kv-rate" style="height: {max(2.0, 100 * rate):.0f}%"></i>'


def _saved(one: Column, most: float) -> str:
    return _seconds(one.estimated, most, "rc-kv-estimated") + _seconds(one.measured, most, "rc-kv-measured")


def _seconds(seconds: float, most: float, kind: str) -> str:
    if not seconds or not most:
        return ""
    name = kind if seconds > 0 else "rc-kv-later"
    return f'<i class="{name}" style="height: {max(2.0, 100 * abs(seconds) / most):.0f}%"></i>'


def _ends(found: Sequence[Column], period: Period, where: tzinfo) -> str:
    middle = found[len(found) // 2]
    told = "".join(f"<span>{_moment(one, period, where)}</span>" for one in (found[0], middle, found[-1]))
    return f'<div class="rc-kv-ends">{told}</div>'


def _moment(one: Column, period: Period, where: tzinfo) -> str:
    return datetime.fromtimestamp(one.start, where).strftime(period.label)


def _told(one: Column, period: Period, where: tzinfo) -> str:
    moment = _moment(one, period, where)
    if not one.answers and not one.known:
        return f"{moment}: no answers"
    rate = "" if one.hit_rate is None else f", hit rate {one.hit_rate:.0%}"
    parts = [f"{count(one.answers, 'answer')}{rate}"]
    parts.append(f"{one.reused:,} tokens reused, {one.repaired:,} repaired, {one.computed:,} computed")
    if one.known:
        parts.append(f"{one.estimated:+,.1f} s estimated, {one.measured:+,.1f} s measured")
    return f"{moment}: {'; '.join(parts)}"


def _table(found: Sequence[Column], period: Period, where: tzinfo) -> str:
    head = "".join(
        f'<th class="rc-number">{name}</th>'
        for name in ("Answers", "Hit rate", "Reused", "Repaired", "Computed", "Estimated", "Measured")
    )
    rows = "".join(
        f"<tr><td>{_moment(one, period, where)}</td>"
        + "".join(f'<td class="rc-number">{cell}</td>' for cell in _cells(one))
        + "</tr>"
        for one in reversed(found)
        if one.answers or one.known
    )
    if not rows:
        return ""
    table = f'<table class="rc-table"><thead><tr><th>From</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<details class="rc-kv-table"><summary>As a table</summary><div class="rc-scroll">{table}</div></details>'


def _cells(one: Column) -> list[str]:
    rate = "–" if one.hit_rate is None else f"{one.hit_rate:.0%}"
    counts = [f"{one.answers:,}", rate, f"{one.reused:,}", f"{one.repaired:,}", f"{one.computed:,}"]
    return [*counts, *(f"{seconds:+,.1f} s" if seconds else "–" for seconds in (one.estimated, one.measured))]
