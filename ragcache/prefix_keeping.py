"""Which exact prefixes are kept, and when: what is likely to come again, in the time that nobody waits in.

A question that is asked alone shares System and chunks with others, which are kept as such, and nothing else. So a
block is kept where an earlier prompt began with it too, or where a prompt goes on from the end of an earlier one, as a
conversation does: then all of it, with its answer.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np

from ragcache.address import prefix_name
from ragcache.errors import FAULTS, StoreError
from ragcache.host import BriefLock
from ragcache.keeping import Keeper, Pause, not_captured
from ragcache.planning import Plan, plan_prompt
from ragcache.policy import Rates
from ragcache.prefix import (
    BLOCK,
    BlockAddress,
    addresses,
    exact_lead,
    with_prefix,
    without_covered,
    worth_bringing,
)
from ragcache.report import COMPUTED, Report
from ragcache.store.base import KVStore
from ragcache.store.budgets import share_of
from ragcache.types import KVForm, Segment, Text, Variant, VariantKey, digest_of

T = TypeVar("T")
logger = logging.getLogger(__name__)
SHARE = 1 / 8  # of each tier's budget, that prefixes may take
FILLED = 0.9  # of that, by K and V: headers and profiles come on top
AT_ONCE = 16  # blocks that are computed after an answer: whoever closes waits for no more. The next answer goes on
BLOCKS = 8192  # that recent prompts began with, remembered by their addresses
ENDS = 128  # of recent prompts
RETRY = 16  # prompts, after which a store that could not keep a block is offered another one
# Computes these blocks of a planned prompt. What goes wrong with what the plan has joins the list.
Compute = Callable[[Plan, Sequence[BlockAddress], "Pause | None", list[str]], Iterator[Variant]]
Keep = Callable[[Sequence[Segment], Sequence[BlockAddress]], list[str]]


class Recurrence:
    """What recent prompts began with, in digests alone. Threads may share it."""

    def __init__(self) -> None:
        self._lock = BriefLock()
        self._blocks = OrderedDict[str, None]()
        self._ends = OrderedDict[tuple[int, str], None]()  # length and digest of whole prompts, within their borders

    def met(self, segments: Sequence[Segment], blocks: Sequence[BlockAddress], head: int = 0) -> tuple[int, bool]:
        """How many of a prompt's blocks an earlier one had too, and whether it goes on from the end of one; from now on
        it is an earlier one itself. Everybody goes on from a prompt that ends with the System segment, the `head`.
        """
        digests = [block.key.digest for block in blocks]
        own, data = sum(map(len, segments)), _ids(segments)
        with self._lock:
            common = next((place for place, one in enumerate(digests) if one not in self._blocks), len(digests))
            goes_on = self._goes_on(segments, data, head)
            _remember(self._ends, (own, _end(hashlib.sha256(data).hexdigest(), segments, own)), ENDS)
            for digest in digests:
                _remember(self._blocks, digest, BLOCKS)
        return common, goes_on

    def _goes_on(self, segments: Sequence[Segment], data: bytes, head: int) -> bool:
        sums, done = hashlib.sha256(), 0
        for length, digest in sorted(self._ends):
            if 4 * length >= len(data):
                return False
            sums.update(data[done : 4 * length])
            done = 4 * length
            if length > head and _end(sums.hexdigest(), segments, length) == digest:
                return True
        return False

    def check_integrity(self) -> None:
        with self._lock:
            assert len(self._blocks) <= BLOCKS
            assert len(self._ends) <= ENDS


class Prefixes:
    """Of one engine in one store. Threads may share it."""

    def __init__(self, store: KVStore, fingerprint: str, form: KVForm, token_bytes: int, keeper: Keeper | None):
        self._store, self._fingerprint, self._keeper = store, fingerprint, keeper
        self._block_bytes = BLOCK * token_bytes
        self._rests = 0  # prompts to come that keep nothing
        self.recurrence = Recurrence()
        store.expect(form, prefix_name(fingerprint))

    def planned(self, plan: Plan, segments: Sequence[Segment], rates: Rates | None, overlaps: bool) -> Plan:
        """With what is stored of its front; `overlaps`: the loader leaves out what is sooner computed."""
        plan = with_prefix(plan, segments, self._fingerprint, self._store)
        if rates is not None and not overlaps:
            plan = worth_bringing(plan, rates)
        return without_covered(plan)

    def answered(
        self,
        plan: Plan,
        segments: Sequence[Segment],
        answer: Sequence[int],
        report: Report,
        compute: Compute,
        era: int,
    ) -> None:
        """After the last token of an answer, which is there and does not fail because of it."""
        try:
            self._answered(plan, segments, answer, report, partial(self._keep, compute, era))
        except FAULTS as error:
            logger.warning("the prefix of a prompt was not kept", exc_info=True)
            report.incidents.append(not_captured(error))

    def _answered(
        self, plan: Plan, segments: Sequence[Segment], answer: Sequence[int], report: Report, keep: Keep
    ) -> None:
        self._renew(block.info.key for block in plan.prefix)
        blocks = list(addresses(segments, self._fingerprint))
        common, goes_on = self.recurrence.met(segments, blocks, plan.head)
        until = _exact_until(plan, report)
        if goes_on and until == len(plan.ids) and answer:
            segments = (*segments, Text(tuple(answer)))
            blocks, until = list(addresses(segments, self._fingerprint)), until + len(answer)
        wanted = [block for block in (blocks if goes_on else blocks[:common]) if block.span.end <= until]
        if not wanted or wanted[-1].span.end <= max(plan.head, plan.prefix_end):
            return
        if self._rests > 0:
            self._rests -= 1
            return
        task = partial(keep, segments, wanted)
        if self._keeper is not None:
            self._keeper.later(task)
        else:
            report.incidents += task()

    def _keep(
        self, compute: Compute, era: int, segments: Sequence[Segment], wanted: Sequence[BlockAddress]
    ) -> list[str]:
        """What is missing of these blocks, from the front: who is killed leaves a chain that ends sooner."""
        plan = plan_prompt(segments, self._fingerprint, self._store, others=False)
        lead = exact_lead(plan)
        covered = lead[-1].span.end if lead else plan.head
        room = int(FILLED * share_of(self._store.kept.budget, SHARE)) // self._block_bytes
        wanted = [block for block in wanted if block.span.end > covered][:room]
        there = [block for block in wanted if self._has(block)]
        if len(there) == len(wanted) or not plan.system_exact or self._store.era() != era:
            return []
        incidents = list[str]()
        pause = self._keeper.pause if self._keeper else None
        self._renew(block.key for block in there)  # so that others go before them
        more = min(len(wanted) - len(there), AT_ONCE) * self._block_bytes
        self._store.trim(prefix_name(self._fingerprint), SHARE, int(more / FILLED))
        chunks = (chunk if chunk in lead else replace(chunk, candidates=()) for chunk in plan.chunks)
        plan = with_prefix(replace(plan, chunks=tuple(chunks)), segments, self._fingerprint, self._store)
        until = max(covered, plan.prefix_end) + AT_ONCE * BLOCK  # so many rows, whatever is stored behind a gap
        missing = [block for block in wanted if block.span.end <= until and not self._has(block)]
        if not missing:
            return []
        try:
            for variant in compute(without_covered(plan), missing, pause, incidents):
                if not self._store.put_within(era, variant):  # of what is behind it nothing could be used
                    self._rests = RETRY if self._store.era() == era else self._rests
                    return incidents
        except StoreError as error:
            self._rests = RETRY
            logger.warning("KV not stored: %s", error)
            incidents.append(f"KV not stored: {error}")
        self._renew(block.key for block in wanted)
        return incidents

    def _has(self, block: BlockAddress) -> bool:
        return any(info.key == block.key for info in self._store.nearby(block.key.family))

    def _renew(self, keys: Iterable[VariantKey]) -> None:
        """What others stand behind was used last: of a chain, its end is evicted first."""
        for key in reversed(list(keys)):
            self._store.renew(key)


def _exact_until(plan: Plan, report: Report) -> int:
    """End of the front that was computed, or placed without a loss, as the prompt was answered. What is stored and was
    computed all the same, since that was sooner, is no sooner brought as a prefix.
    """
    for chunk, told in zip(plan.chunks, report.chunks, strict=True):
        is_new = not chunk.candidates and not report.declined
        will_serve = bool(chunk.candidates) and chunk.candidates[0].exact
        if not told.exact and not (told.tier == COMPUTED and (is_new or will_serve)):
            return chunk.span.start
    return len(plan.ids)


def _ids(segments: Sequence[Segment]) -> bytes:
    return np.asarray([token for segment in segments for token in segment.ids], "<i4").tobytes()


def _end(ids: str, segments: Sequence[Segment], length: int) -> str:
    """Names so many tokens of a prompt, and the borders that they stand within: nobody learns by what is kept of his
    prompt what was asked within another one.
    """
    starts = accumulate(map(len, segments), initial=0)
    borders = {segment.border for segment, start in zip(segments, starts, strict=False) if start < length}
    return digest_of(ids, *sorted(borders))


def _remember(known: OrderedDict[T, None], one: T, most: int) -> None:
    known[one] = None
    known.move_to_end(one)
    if len(known) > most:
        known.popitem(last=False)
