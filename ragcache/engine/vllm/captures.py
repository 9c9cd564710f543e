"""KVGen's step on a worker: a segment is computed behind what was placed, slice by slice, and kept. It is stored on a
thread, since writing may take long, and every request's next token waits for vLLM's own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from ragcache.address import address_of, lineage_of
from ragcache.engine.vllm.cores import leave_cores
from ragcache.engine.vllm.orders import Answers, Capture, Incident, Stored
from ragcache.engine.vllm.placement import Exchange, Linking
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import FAULTS, PromptError, reason_of
from ragcache.loader.threads import DiskThreads, Task
from ragcache.store.base import KVStore
from ragcache.types import Chunk, System, Variant

logger = logging.getLogger(__name__)
STORE_S = 120.0  # of one: another process may have the index meanwhile


class Storing:
    """What was captured, on its way to the store. Used by one thread."""

    def __init__(self) -> None:
        self._threads = DiskThreads(1, "ragcache-store", STORE_S, initializer=leave_cores)
        self._tasks: dict[str, Task[bool]] = {}

    def begin(self, request: str, store: KVStore, variant: Variant) -> None:
        """Whoever captures asks for it to be kept, whatever goes for it."""
        self._tasks[request] = self._threads.submit(partial(store.put, variant, wanted=True))

    @property
    def awaited(self) -> list[Future[Any]]:
        return [task.future for task in self._tasks.values()]

    def tell(self, answers: Answers) -> None:
        """What has ended since."""
        for request, told in self._ended():
            answers.stored.append(Stored(request))
            answers.incidents += [] if told is None else [Incident(request, told)]

    def _ended(self) -> Iterator[tuple[str, str | None]]:
        """By request, why it was not stored; None where it was."""
        for request, task in list(self._tasks.items()):
            if not task.future.done() and not self._threads.late(task):
                continue
            del self._tasks[request]
            if task.future.done():
                yield request, _told(task.future)
            else:
                self._threads.give_up(task)
                yield request, "KV not stored: the cache folder did not take it in time: look at its disk"

    def close(self) -> None:
        self._threads.close()


def _told(stored: Future[bool]) -> str | None:
    if (error := stored.exception()) is None:
        return None if stored.result() else "KV not stored: the store has declined it"
    if not isinstance(error, FAULTS):
        raise error
    logger.warning("KV not stored", exc_info=error)
    return f"KV not stored: {reason_of(error)}"


def captured(
    capture: Capture,
    linking: Linking,
    spans: SpanRunner,
    exchanges: Mapping[str, Exchange],
    storing: Storing,
    store: KVStore,
) -> None:
    """Computes the next slice; what is complete is handed over, or begun to be stored. Raises PromptError for what its
    key does not name.
    """
    reason = misnamed(capture, linking)
    if linking.loading is not None and linking.loading.lags:
        reason = "upper layers of what stands before it have not come"
    if reason is not None:
        raise PromptError(reason)
    if linking.recorder is None:
        lengths = [span.stop - span.start for _, span in sorted(linking.placed.items())]
        assert sum(lengths) == capture.start, (lengths, capture.start)
        linking.recorder = spans.recorder(linking.room, lengths, len(capture.segment))
    spans.capture(capture.rows, linking.recorder)
    if not capture.last:
        return
    k, v, profile = linking.recorder.result()
    lineage = lineage_of(len(capture.segment), linking.behind)
    variant = Variant(capture.key, capture.segment.ids, k, v, profile, lineage)
    if not capture.exchange:
        storing.begin(capture.request, store, variant)
    elif capture.exchange in exchanges:
        exchanges[capture.exchange].captured = variant


def misnamed(capture: Capture, linking: Linking) -> str | None:
    """Why what was placed and will be computed is not what the key says; None when it is."""
    before = [linking.variants[index] for index in sorted(linking.variants)]
    end = sum(len(placed.ids) for placed in before)
    first = capture.rows.positions[0]
    rows = capture.segment.ids[first - end : first - end + len(capture.rows.ids)]
    behind = sorted(linking.variants) == list(range(len(before))) and capture.start == end <= first
    if not behind or capture.rows.ids != rows or capture.rows.positions != tuple(range(first, first + len(rows))):
        return "it does not stand right behind what was placed"
    kind = Chunk if before else System
    segment = kind(capture.segment.ids, capture.segment.border)
    try:
        found = address_of(capture.key.fingerprint, [(placed.key, placed.ids) for placed in before], segment)
    except PromptError as error:
        return str(error)
    return None if found == capture.key else "its key does not name what was placed before it"
