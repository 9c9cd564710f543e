"""What all requests together reused and spent."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from typing import Any

from ragcache.engine.vllm.requests import KEY
from ragcache.faults import FAULTS, reason_of
from ragcache.report import Report

logger = logging.getLogger(__name__)
REFUSED, FAILED = "refused", "failed"
FAMILIES = {
    "requests": "Requests: linked, plain (nothing cached), refused (asked wrongly), failed (linking broke), captured.",
    "chunks": "Chunks of linked and plain prompts by the tier that held them.",
    "tokens": "Tokens before the question: reused, repaired or computed.",
    "seconds": "Seconds spent for linked prompts, by stage.",
    "incidents": "What went wrong and was worked around.",
}


class LinkTotals:
    """By `family/kind`, since they were last taken."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, float] = defaultdict(float)

    def unlinked(self, kind: str) -> None:
        """`kind`: REFUSED or FAILED."""
        self._counts[f"requests/{kind}"] += 1

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


def carried(report: Report) -> dict[str, Any]:
    """What a response carries. It is written as JSON elsewhere, for all requests: what that cannot say is met here."""
    try:
        told = report.to_dict()
        json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    except FAULTS as error:
        logger.warning("a report cannot be told", exc_info=True)
        return {KEY: {"incidents": [f"no report: {reason_of(error)}"]}}
    return {KEY: told}
