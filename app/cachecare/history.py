"""What answers had of the cache is written down behind them, and when keys and context caches were last used: on a
thread of its own, since it may wait for a disk.

A saving is told where it was measured, which takes the same prompt without cache, or where the engine's running rates
tell what that would have taken; each apart from the other, and nothing where neither is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from app.answering import Answer
from app.answering.stream import AnswerStream
from app.errors import CatalogError
from app.library.catalog import Catalog
from app.library.catalog.serving_records import CacheTally
from app.models import Models
from ragcache.rates import Rates, Work
from ragcache.report import COMPUTED, FULL, PREFIX, Report
from ragcache.store.findings import BUCKET, DISK, RAM

WRITE_S = 5.0
WAIT_S = 1.0  # who reads the history waits so long for others who write it down
MOST = 20_000  # chunks, and moments of collections, that wait to be written; beyond them nothing new is counted
# Of a tally, by the tiers of reports. A chunk that was computed may have begun in an exact prefix.
FIELDS: Mapping[str, str] = {
    RAM: "ram",
    DISK: "disk",
    BUCKET: "bucket",
    PREFIX: "prefix",
    COMPUTED: "prefix",
}
_log = logging.getLogger(__name__)


class CacheRecorder:
    """Threads share it. `start` and `close` are of the thread that writes; `write` is done at once by anybody."""

    def __init__(self, catalog: Catalog, models: Models):
        self._catalog, self._models = catalog, models
        self._lock = threading.Lock()  # of what waits
        self._writing = threading.Lock()  # who has written finds what another was about to
        self._tallies = defaultdict[tuple[int, int], CacheTally](CacheTally)
        self._uses: dict[tuple[int, int], tuple[int, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cache-history", daemon=True)

    def watch(self, stream: AnswerStream) -> None:
        if stream.collection_id is not None:
            stream.then.append(partial(self._answered, stream.collection_id, stream.finding_s))

    def compares(self, stream: AnswerStream, earlier: Mapping[str, Any] | None) -> AnswerStream:
        """The same without cache as an answer with this report, if it comes to the same prompt."""
        if stream.collection_id is not None and earlier is not None:
            stream.then.append(partial(self._compared, stream.collection_id, earlier))
        return stream

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """With what is left to write."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.write(-1)

    def write(self, wait_s: float = WAIT_S) -> None:
        """What cannot be written now waits for the next time."""
        if self._writing.acquire(timeout=wait_s):
            try:
                self._write()
            finally:
                self._writing.release()

    def _write(self) -> None:
        self._catalog.write_uses()
        with self._lock:
            tallies, uses = dict(self._tallies), dict(self._uses)
            self._tallies.clear()
            self._uses.clear()
        if not tallies and not uses:
            return
        try:
            self._catalog.cache_history.add(tallies, uses)
        except CatalogError as error:
            _log.info("the history of the cache waits: %s", error)
            for (collection_id, second), tally in tallies.items():
                self._count(collection_id, second, tally)
            for (collection_id, chunk), (times, reused) in uses.items():
                self._use(collection_id, chunk, times, reused)

    def _run(self) -> None:
        while not self._ended.wait(WRITE_S):
            self.write()

    def _answered(self, collection_id: int, finding_s: float, answer: Answer) -> Answer:
        report = answer.report
        if report.linker == FULL or not report.answer_tokens:
            return answer
        saved = _estimated(report, finding_s, running_rates(self._models))
        tally = CacheTally(
            answers=1,
            reused=report.reused,
            repaired=report.repaired,
            computed=sum(chunk.computed for chunk in report.chunks),
            **_by_tier(report),
            first_s=report.ttft_s,
            estimated=int(saved is not None),
            estimated_s=saved or 0.0,
        )
        self._count(collection_id, self._second(), tally)
        if len(answer.citations) == len(report.chunks):  # an engine may tell of none
            for citation, chunk in zip(answer.citations, report.chunks, strict=True):
                if chunk.reused and isinstance(citation.chunk_id, int):
                    self._use(collection_id, citation.chunk_id, 1, chunk.reused)
        return answer

    def _compared(self, collection_id: int, earlier: Mapping[str, Any], answer: Answer) -> Answer:
        report = answer.report
        read = [one.get("chunk") for one in earlier.get("chunks", ())]
        alike = report.prompt_tokens == earlier.get("prompt_tokens") and [one.chunk for one in report.chunks] == read
        alike = alike and earlier.get("linker") != FULL
        first_s = earlier.get("ttft_s")
        if alike and report.answer_tokens and isinstance(first_s, float):
            self._count(collection_id, self._second(), CacheTally(compared=1, compared_s=report.ttft_s - first_s))
        return answer

    def _second(self) -> int:
        """The first one of this minute: what is written together needs to be told apart no further."""
        return int(time.time()) // 60 * 60

    def _count(self, collection_id: int, second: int, tally: CacheTally) -> None:
        with self._lock:
            if (collection_id, second) in self._tallies or len(self._tallies) < MOST:
                self._tallies[collection_id, second] += tally

    def _use(self, collection_id: int, chunk: int, times: int, reused: int) -> None:
        with self._lock:
            before = self._uses.get((collection_id, chunk))
            if before is not None or len(self._uses) < MOST:
                known, tokens = before or (0, 0)
                self._uses[collection_id, chunk] = (known + times, tokens + reused)


def running_rates(models: Models) -> Rates | None:
    """Of the engine, where it is loaded and learns any."""
    loaded = models.loaded
    return None if loaded is None else loaded.rates


def _by_tier(report: Report) -> dict[str, int]:
    found = defaultdict[str, int](int)
    for chunk in report.chunks:
        if (name := FIELDS.get(chunk.tier)) is not None:
            found[name] += chunk.reused
    return dict(found)


def _estimated(report: Report, finding_s: float, rates: Rates | None) -> float | None:
    """By how much its first token came sooner than if all of the prompt had been computed at once; below zero where it
    came later, which waiting for other answers may do.
    """
    if rates is None or not rates.settled or not report.ttft_s:
        return None
    return rates.seconds(Work(passes=1) + Work.of_rows(0, report.prompt_tokens)) - (report.ttft_s - finding_s)
