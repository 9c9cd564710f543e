"""The plain loader: chunk after chunk, then everything else is computed. The reference for any cleverer one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ragcache.errors import StoreError
from ragcache.planning import Candidate, Plan, PlannedChunk
from ragcache.report import COMPUTED, ChunkReport, Report
from ragcache.store.base import Fetched, KVStore
from ragcache.types import Variant

logger = logging.getLogger(__name__)
Place = Callable[[Variant, int], None]


@dataclass(frozen=True)
class LoadedChunk:
    """A planned chunk and the variant that was placed for it; None is a miss."""

    planned: PlannedChunk
    candidate: Candidate | None
    report: ChunkReport
    seconds: float = 0.0  # that reading it took


@dataclass(frozen=True)
class SequentialLoader:
    """`front` chunks are left to be computed even where they are cached; the rest is loaded behind them."""

    front: int = 0

    def load(
        self, plan: Plan, store: KVStore, place: Place, report: Report, *, system_exact: bool = True
    ) -> list[LoadedChunk]:
        """Place every chunk that some tier has. A bad entry is a miss, told in the report; it never raises.

        Behind a System segment that was placed and not `system_exact`, nothing is exact.
        """
        return [self._load_chunk(planned, store, place, report, system_exact) for planned in plan.chunks]

    def _load_chunk(
        self, planned: PlannedChunk, store: KVStore, place: Place, report: Report, system_exact: bool
    ) -> LoadedChunk:
        tokens = len(planned.segment)
        if planned.index >= self.front:
            for found in planned.candidates:
                fetched = fetch(found, store, report)
                if fetched is None:
                    continue
                candidate = found.fetched(fetched.variant.lossless and system_exact)
                place(fetched.variant, planned.span.start)
                chunk = ChunkReport(
                    planned.segment.hash,
                    tokens,
                    fetched.tier,
                    reused=tokens,
                    exact=candidate.exact,
                    overlap=candidate.reuse.beta_adjusted,
                    nbytes=fetched.nbytes,
                )
                return LoadedChunk(planned, candidate, chunk, fetched.seconds)
        return LoadedChunk(planned, None, ChunkReport(planned.segment.hash, tokens, COMPUTED, computed=tokens))


def fetch(candidate: Candidate, store: KVStore, report: Report) -> Fetched | None:
    """The entry, or None after saying why not."""
    try:
        fetched = store.get(candidate.info.key)
    except StoreError as error:
        logger.warning("cache entry not used: %s", error)
        report.incidents.append(f"cache entry not used: {error}")
        return None
    if fetched is None:
        logger.info("variant %s vanished between plan and load", candidate.info.key.digest[:12])
    return fetched
