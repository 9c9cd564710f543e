"""What becomes of each request, and of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragcache.engine.vllm.requests import KEY
from ragcache.engine.vllm.totals import LinkTotals, carried
from ragcache.report import Report


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

    def refuse(self, request: str, kind: str, incidents: Sequence[str]) -> None:
        self.reports.pop(request, None)
        self.refusals[request] = Refusal(kind, tuple(incidents))

    def told(self, request: str) -> dict[str, Any]:
        """What the response of a request that still runs will carry, once it is known."""
        report = self.reports.get(request)
        return {} if report is None else carried(report)

    def gone(self, request: str) -> dict[str, Any] | None:
        """What its response carries."""
        report, refusal = self.reports.pop(request, None), self.refusals.pop(request, None)
        if refusal is not None:
            self.totals.unlinked(refusal.kind)
            return {KEY: {"incidents": list(refusal.incidents)}}
        if report is None:
            return None
        self.totals.add(report)
        return carried(report)
