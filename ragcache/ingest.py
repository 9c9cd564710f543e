"""From chunks to stored variants, over any engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

from ragcache.engine.base import Engine
from ragcache.errors import StoreError
from ragcache.kvgen import KVGen
from ragcache.report import Report
from ragcache.store.base import KVStore
from ragcache.types import Chunk, System, Variant

logger = logging.getLogger(__name__)


class Ingest:
    """One engine and the store that its KV goes to. Threads may share it."""

    def __init__(self, engine: Engine, store: KVStore, context_chunks: int = 3):
        self.engine = engine
        self.store = store
        self.kvgen = KVGen(engine, context_chunks)
        self._system_lock = threading.Lock()

    def ingest(self, system: System, chunks: Iterable[Chunk]) -> Iterator[Variant]:
        """Capture a document's chunks in order and store each variant; yields what was stored, one at a time.

        Raises StoreError when the store is full or not writable; chunks yielded before are kept.
        """
        behind = self.system_variant(system)
        for variant in self.kvgen.ingest(behind, chunks):
            self.store.put(variant)
            yield variant

    def system_variant(self, system: System, report: Report | None = None) -> Variant:
        """The System segment's KV, from the store or computed (and stored) now."""
        key = self.kvgen.system_key(system)
        with self._system_lock:  # several threads that start with a cold store compute it once
            incidents = report.incidents if report else []
            try:
                fetched = self.store.get(key)
            except StoreError as error:
                logger.warning("cached System segment not used: %s", error)
                incidents.append(f"cached System segment not used: {error}")
                fetched = None
            if fetched is not None:
                if report:
                    report.system_tier = fetched.tier
                return fetched.variant
            if report:
                report.other_computed += len(system)
            variant = self.kvgen.system(system)
            self._keep(variant, incidents)
            return variant

    def _keep(self, variant: Variant, incidents: list[str]) -> None:
        """An answer does not fail because its KV cannot be kept."""
        try:
            self.store.put(variant)
        except StoreError as error:
            logger.warning("KV not stored: %s", error)
            incidents.append(f"KV not stored: {error}")
