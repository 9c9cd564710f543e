"""What people read of an answer: where a citation stands, and what of the prompt was reused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from app.errors import printable
from ragcache.report import COMPUTED, OTHER, Report


def place(source: str, heading: Sequence[str], pages: Sequence[tuple[int, str]], sources: Collection[str] = ()) -> str:
    """ "report.pdf, pages 3-4", or "guide.md, Setup > Linux" where there are no pages. Where others of the `sources`
    have that name, as many folders stand before it as part it from them: "2024/report.pdf".
    """
    name = printable(Path(_name(source, sources)))
    if pages:
        (first, label), (last, _) = pages[0], pages[-1]
        return f"{name}, {label} {first}" if first == last else f"{name}, {label}s {first}-{last}"
    return ", ".join([name, *([" > ".join(heading)] if heading else [])])


def _name(source: str, sources: Collection[str]) -> str:
    last = source.rpartition("/")[2]
    parts, shown = _parts(source), 1
    those = [_parts(one) for one in sources if one.endswith(last) and one != source]
    while shown < len(parts) and any(one[-shown:] == parts[-shown:] for one in those):
        shown += 1
    return "/".join(parts[-shown:]) or source


def _parts(source: str) -> Sequence[str]:
    """Without the root, so that no caption is an absolute path."""
    path = Path(source)
    return path.parts[1:] if path.anchor else path.parts


def report_line(report: Report, without: Report | None = None) -> str:
    """A report in a line; `without` is that of the same prompt with no cache, if it was measured."""
    tokens = sum(chunk.tokens for chunk in report.chunks)
    tiers: dict[str, int] = {}
    for chunk in report.chunks:
        tiers[chunk.tier] = tiers.get(chunk.tier, 0) + 1
    where = [
        f"{count}/{len(report.chunks)} chunks {tier if tier == COMPUTED else f'from {tier}'}"
        for tier, count in sorted(tiers.items(), key=lambda found: -found[1])
    ]
    borrowed = sum(chunk.system == OTHER for chunk in report.chunks)
    where += [f"{borrowed}/{len(report.chunks)} of another system prompt"] if borrowed else []
    measured = f" (without cache {without.ttft_s:.2f} s, measured)" if without else ""
    repaired = [f"{report.repaired / tokens:.0%} repaired".replace("%", " %")] if tokens else ["no chunks"]
    return " · ".join([f"first token {report.ttft_s:.2f} s{measured}", *where, *repaired])
