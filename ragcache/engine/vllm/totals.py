"""What all requests together reused and spent."""

from __future__ import annotations

from collections import defaultdict

from ragcache.report import Report

FAMILIES = {
    "requests": "Requests: linked, plain (nothing was cached), refused (asked wrongly) and captured ones.",
    "chunks": "Chunks of linked and plain prompts by the tier that held them.",
    "tokens": "Tokens before the question: reused, repaired or computed.",
    "seconds": "Seconds spent for linked prompts, by stage.",
    "incidents": "What went wrong and was worked around.",
}


class Totals:
    """By `family/kind`, since they were last taken."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, float] = defaultdict(float)

    def refused(self) -> None:
        self._counts["requests/refused"] += 1

    def add(self, report: Report) -> None:
        counts = self._counts
        if report.linker == "capture":
            counts["requests/captured"] += 1
        else:
            counts["requests/linked" if report.reused else "requests/plain"] += 1
            for chunk in report.chunks:
                counts[f"chunks/{chunk.tier}"] += 1
            for kind in ("reused", "repaired", "computed"):
                counts[f"tokens/{kind}"] += getattr(report, kind)
        for stage, seconds in report.seconds.items():
            counts[f"seconds/{stage}"] += seconds
        counts["incidents/all"] += len(report.incidents)

    def take(self) -> dict[str, float]:
        taken, self._counts = self._counts, defaultdict(float)
        return {name: value for name, value in taken.items() if value}
