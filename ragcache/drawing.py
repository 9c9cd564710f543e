"""A report's time line as a picture: tokens downwards, time to the right, and a lane for each of the two sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ragcache.report import Report
from ragcache.timeline import COMPUTE, LINK, LOAD, PLACE, Stretch, meeting

COLOURS = {COMPUTE: "#d9822b", LOAD: "#4a86c5", PLACE: "#1f4f8a", LINK: "#8fb573"}
LEGEND = {COMPUTE: "computed from the front", LOAD: "read from the back", PLACE: "placed", LINK: "repair and question"}
LANES = (("engine", (COMPUTE, PLACE, LINK)), ("disk", (LOAD,)))
WIDTH, LEFT, RIGHT = 860, 74, 24
TITLE, PLOT, LANE, GAP, AXIS = 30, 240, 16, 6, 46
HEIGHT = TITLE + PLOT + len(LANES) * (LANE + GAP) + AXIS  # of one prompt's panel
TICKS = 6


def time_line(reports: Mapping[str, Report]) -> str:
    """An SVG with a panel for each report, by its title."""
    legend = 28
    size = f'width="{WIDTH}" height="{legend + HEIGHT * len(reports)}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    lines.append('<rect width="100%" height="100%" fill="white"/>')
    for place, (kind, meaning) in enumerate(LEGEND.items()):
        x = LEFT + place * 190
        lines.append(f'<rect x="{x}" y="9" width="12" height="12" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 17}" y="19">{meaning}</text>')
    for place, (title, report) in enumerate(reports.items()):
        lines.append(f'<g transform="translate(0 {legend + place * HEIGHT})">')
        lines += _panel(title, report)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, report: Report) -> Iterator[str]:
    timeline: Sequence[Stretch] = report.timeline
    whole = max([report.ttft_s, *(one.ended for one in timeline)]) or 1.0
    across, down = (WIDTH - LEFT - RIGHT) / whole, PLOT / max(1, report.prompt_tokens)

    def box(one: Stretch, y: float, height: float) -> str:
        began, ended = max(0.0, one.began), max(0.0, one.ended)  # it may have been read before the engine was free
        x, width = LEFT + began * across, max(0.8, (ended - began) * across)
        at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.8, height):.1f}"'
        told = f"{one.kind}: tokens {one.first} to {one.last}, {began:.3f} to {ended:.3f} s"
        edge = 'stroke="white" stroke-width=".4"' if width > 3 else ""  # which would hide what is thin
        return f'<rect {at} fill="{COLOURS[one.kind]}" {edge}><title>{told}</title></rect>'

    yield f'<text x="{LEFT}" y="20" font-weight="bold">{escape(title)}</text>'
    yield f'<rect x="{LEFT}" y="{TITLE}" width="{WIDTH - LEFT - RIGHT}" height="{PLOT}" fill="#f4f4f4"/>'
    yield from (box(one, TITLE + one.first * down, (one.last - one.first) * down) for one in timeline)
    for tokens in dict.fromkeys((0, report.prompt_tokens // 2, report.prompt_tokens)):
        yield f'<text x="{LEFT - 6}" y="{TITLE + tokens * down + 4:.1f}" text-anchor="end">{tokens}</text>'
    yield f'<text x="14" y="{TITLE + PLOT / 2 + 24}" transform="rotate(-90 14 {TITLE + PLOT / 2 + 24})">tokens</text>'
    y = TITLE + PLOT + GAP
    for name, kinds in LANES:
        yield f'<text x="{LEFT - 6}" y="{y + LANE - 4}" text-anchor="end">{name}</text>'
        yield from (box(one, y, LANE) for one in timeline if one.kind in kinds)
        y += LANE + GAP
    step = _round_step(whole / TICKS)
    for tick in range(int(whole / step) + 1):
        x = LEFT + tick * step * across
        yield f'<line x1="{x:.1f}" y1="{TITLE}" x2="{x:.1f}" y2="{y}" stroke="#999" stroke-width=".4"/>'
        yield f'<text x="{x:.1f}" y="{y + 12}" text-anchor="middle">{tick * step:g} s</text>'
    if (met := meeting(timeline)) is not None:
        x, level = LEFT + met.seconds * across, TITLE + met.position * down
        yield f'<path d="M{LEFT} {level:.1f}H{x:.1f}" stroke="black" stroke-dasharray="5 3" fill="none"/>'
        yield f'<circle cx="{x:.1f}" cy="{level:.1f}" r="4"/>'
        told = f"met behind {met.position} tokens, all there after {met.seconds:.2f} s"
        left = x > WIDTH - 320  # where there is no room to the right of the point
        anchor = f'x="{x - 9 if left else x + 9:.1f}" text-anchor="{"end" if left else "start"}"'
        yield f'<text {anchor} y="{level - 6:.1f}" font-weight="bold">{told}</text>'


def _round_step(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least), 10 * power)
