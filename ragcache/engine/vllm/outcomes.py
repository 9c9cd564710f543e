"""What becomes of each request, and what all of them together reused and spent."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragcache.engine.vllm.requests import KEY
from ragcache.errors import FAULTS, reason_of
from ragcache.report import Report

logger = logging.getLogger(__name__)
REFUSED, FAILED = "refused", "failed"
KEPT = 512  # reports that are asked for afterwards: clients that went away never ask
UNKNOWN = "no report: nothing of that name, or too many came after it"
FAMILIES = {
    "requests": "Requests: linked, plain (nothing cached), refused (asked wrongly), failed (linking broke), captured.",
    "chunks": "Chunks of linked and plain prompts by the tier that held them.",
    "tokens": "Tokens before the question: reused, repaired or computed.",
    "seconds": "Seconds spent for linked prompts, by stage.",
    "own": "Seconds of our code on vLLM's threads (scheduler, worker) but for what places and computes; of all steps.",
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


@dataclass(frozen=True)
class Refusal:
    """Why a request that asked for it is not linked."""

    kind: str  # REFUSED or FAILED
    incidents: tuple[str, ...]


class Outcomes:
    """From when it is known until the request is gone."""

    def __init__(self) -> None:
        self.totals = LinkTotals()
        self.reports: dict[str, Report] = {}
        self.refusals: dict[str, Refusal] = {}  # of requests that are served plainly though they asked
        self._names: dict[str, str] = {}  # of requests whose report is asked for afterwards
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()  # by these names
        self._asking: dict[str, str] = {}  # requests that ask for one

    def refuse(self, request: str, kind: str, incidents: Sequence[str]) -> None:
        self.reports.pop(request, None)
        self.refusals[request] = Refusal(kind, tuple(incidents))

    def keep(self, request: str, name: str) -> None:
        """What becomes of it is asked for afterwards, where it has a name."""
        if name:
            self._names[request] = name

    def ask(self, request: str, name: str) -> None:
        """What became of the one of that name is what this one is told."""
        self._asking[request] = name

    def told(self, request: str) -> dict[str, Any]:
        """What the response of a request that still runs will carry, once it is known."""
        report = self.reports.get(request)
        return {} if report is None else carried(report)

    def gone(self, request: str) -> dict[str, Any] | None:
        """What its response carries."""
        carries, name = self._carries(request), self._names.pop(request, None)
        if name is not None and carries is not None:
            self._kept[name] = carries
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return carries

    def _carries(self, request: str) -> dict[str, Any] | None:
        if (asked := self._asking.pop(request, None)) is not None:
            return self._kept.pop(asked, None) or self._told_early(asked)
        report, refusal = self.reports.pop(request, None), self.refusals.pop(request, None)
        if refusal is not None:
            self.totals.unlinked(refusal.kind)
            return {KEY: {"incidents": list(refusal.incidents)}}
        if report is None:
            return None
        self.totals.add(report)
        return carried(report)

    def _told_early(self, name: str) -> dict[str, Any]:
        """Whoever has hung up may ask before vLLM has heard of it."""
        request = next((one for one, known in self._names.items() if known == name), "")
        if told := self.told(request):
            del self._names[request]
        return told or {KEY: {"incidents": [UNKNOWN]}}
