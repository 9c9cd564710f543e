"""KVGen: the KV of every chunk of a document, captured once, in the context of the chunks before it, and stored."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter

from ragcache.address import MOST_CONTEXT, address_of, border_behind, lead_address, system_address, visible
from ragcache.engine import Engine
from ragcache.errors import ConfigError, CorruptEntry, ForeignEntry, PromptError, StoreError
from ragcache.host import BriefLock
from ragcache.keeping import Pause
from ragcache.locks import LocksByKey
from ragcache.planning import ChunkSurroundings, candidates, stored_variants
from ragcache.report import COMPUTED
from ragcache.scoring import Prefix
from ragcache.store.base import KVStore
from ragcache.store.findings import RAM, Fetched
from ragcache.types import Chunk, System, Variant, VariantKey

# A variant that is stored already and serves a chunk behind System and these; None where one is to be computed.
Stored = Callable[[Variant, Sequence[Variant], Chunk], Variant | None]
# Lead variants cost a second pass with little attention. A document of so many tokens can afford it: its plain prefill,
# whose attention grows with each token, takes about as long as both passes together (docs/benchmarks.md). In a shorter
# one the first use of a chunk at the head of a prompt captures it, after the answer.
LEAD_TOKENS = 5000
# Each so manieth chunk of a document is computed behind none: what a chunk had seen is told whole by its lineage, which
# has room for 256, and goes with any of it.
AFRESH = 128
logger = logging.getLogger(__name__)
RETRY = 16  # a chunk that was not kept is computed for the store again at every so manieth prompt that lacks it
_REMEMBERED = 1024  # such chunks
OWNED_BYTES = 128 << 20  # of System segments that are somebody's own, all together


def nothing_stored(system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant | None:
    return None


class KVGen:
    """Runs documents behind one System segment. It computes; keeping is the store's part."""

    def __init__(self, engine: Engine, context_chunks: int = 3, pause: Pause | None = None):
        """`pause` is called amid what is computed, if that can wait."""
        if not 0 <= context_chunks <= MOST_CONTEXT:
            raise ConfigError(f"context_chunks is {context_chunks}: use 0 (each chunk alone) to {MOST_CONTEXT}")
        self.engine = engine
        self.context_chunks = context_chunks
        self._pause = pause

    def system(self, system: System) -> Variant:
        """The System segment's own KV: exact wherever it stands, since it always stands first."""
        return self.engine.capture([], system, self._pause)

    def system_key(self, system: System) -> VariantKey:
        return system_address(self.engine.spec.fingerprint, system.hash, system.border)

    def ingest(
        self,
        system: Variant,
        chunks: Iterable[Chunk],
        stored: Stored = nothing_stored,
        opening: Sequence[Variant] = (),
    ) -> Iterator[Variant]:
        """All variants that a document is worth: those of `document`, and from LEAD_TOKENS on each chunk's lead
        variant: the chunk right behind System, for prompts that it leads. All of its context is gone there, so any
        other variant has its largest error.
        """
        waiting: list[Chunk] = []  # chunks whose lead variant is still to come
        tokens = 0
        for variant in self.document(system, chunks, stored, opening):
            yield variant
            tokens += len(variant)
            if variant.key.context:
                waiting.append(Chunk(variant.ids, variant.key.border))
            if tokens >= LEAD_TOKENS:
                yield from (stored(system, [], lead) or self.capture(system, [], lead) for lead in waiting)
                waiting = []

    def document(
        self,
        system: Variant,
        chunks: Iterable[Chunk],
        stored: Stored = nothing_stored,
        opening: Sequence[Variant] = (),
    ) -> Iterator[Variant]:
        """The chunks' variants in document order, each computed once over the *stored* KV of those before it, the first
        ones also over what opens the document.
        """
        context = deque(opening, maxlen=self.context_chunks)
        for place, chunk in enumerate(chunks):
            if place and not place % AFRESH:
                context.clear()
            before = visible(context, border_behind(system.key.border, chunk))
            others = max(0, min(len(opening), self.context_chunks - place))
            variant = stored(system, before, chunk) or self._captured(system, before, chunk, others)
            yield variant
            context.append(variant)

    def _captured(self, system: Variant, context: Sequence[Variant], chunk: Chunk, others: int) -> Variant:
        """Of the context, so many at most are another text's: where they leave no room, it does without them."""
        try:
            return self.capture(system, context, chunk)
        except PromptError:
            if not others or not context:
                raise
            return self._captured(system, context[1:], chunk, others - 1)

    def capture(self, system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant:
        """One chunk behind `system` and `context`, whose KV is taken as it is stored."""
        return self.engine.capture([system, *context], chunk, self._pause)


class Refused:
    """Chunks that the store could not keep. Threads may share it."""

    def __init__(self) -> None:
        self._lock = BriefLock()
        self._skips: OrderedDict[str, int] = OrderedDict()  # prompts to come, by the chunk's hash

    def add(self, chunk: str) -> None:
        with self._lock:
            self._skips[chunk] = RETRY - 1
            self._skips.move_to_end(chunk)
            if len(self._skips) > _REMEMBERED:
                self._skips.popitem(last=False)

    def skips(self, chunk: str) -> bool:
        """Asked once by each prompt that lacks it."""
        with self._lock:
            left = self._skips.pop(chunk, 0)
            if left > 1:
                self._skips[chunk] = left - 1
            return left > 0


class SystemKV:
    """KV of System segments, from a store or computed and stored now. Threads may share it."""

    def __init__(self, kvgen: KVGen, store: KVStore, refused: Refused):
        self._kvgen, self._store, self._refused = kvgen, store, refused
        self._lock = BriefLock()
        self._making = LocksByKey()
        self._rounded = set[VariantKey]()  # that were computed again, or are about to be
        self._owned = OrderedDict[tuple[str, VariantKey], Variant]()  # in memory alone, the last used one last

    def fetched(self, system: System, incidents: list[str], is_told: bool = False) -> Fetched:
        """What went wrong joins the incidents; if it `is_told` that the stored one cannot be read, that does not.
        Several threads that start with a cold store compute it once.
        """
        with self._making.held(self._kvgen.system_key(system)):
            found = self._stored(system, [] if is_told else incidents)
            return found or self._made(self._kvgen, system, incidents)

    def patiently(self, kvgen: KVGen, system: System, incidents: list[str]) -> Fetched:
        """As `fetched`, by a generator that others may hold up: nobody waits for what it computes."""
        return self._stored(system, incidents) or self._made(kvgen, system, incidents)

    def _stored(self, system: System, incidents: list[str]) -> Fetched | None:
        """None for one that is rounded, too: behind it nothing would ever be exact. That is computed again once, since
        the store may not be able to keep it.
        """
        found = fetched(self._store, self._kvgen.system_key(system), incidents)
        if found is None or found.variant.lossless or found.variant.key in self._rounded:
            return found
        self._rounded.add(found.variant.key)
        return None

    def _made(self, kvgen: KVGen, system: System, incidents: list[str]) -> Fetched:
        """It is wanted: every prompt asks for it."""
        started = perf_counter()
        variant = kvgen.system(system)
        taken = perf_counter() - started
        keep(variant, partial(self._store.put, wanted=True), self._refused, incidents)
        return Fetched(variant, COMPUTED, 0, taken)

    def owned(self, owner: str, system: System, incidents: list[str], is_told: bool = False) -> Fetched:
        """As `fetched`, for a text of somebody's own: kept for a while, for him, and in no store."""
        place, started = (owner, self._kvgen.system_key(system)), perf_counter()
        with self._lock:
            variant = self._owned.pop(place, None)
        tier = COMPUTED if variant is None else RAM
        if variant is None:  # nobody else waits for it
            variant = self._kvgen.system(system)
        with self._lock:
            self._owned[place] = variant
            while sum(one.nbytes for one in self._owned.values()) > OWNED_BYTES:
                self._owned.popitem(last=False)
        return Fetched(variant, tier, variant.nbytes if tier == RAM else 0, perf_counter() - started)


class ChunkIngest:
    """One engine and the store that its KV goes to. Threads may share it."""

    def __init__(self, engine: Engine, store: KVStore, context_chunks: int = 3):
        self.engine = engine
        self.store = store
        self.kvgen = KVGen(engine, context_chunks)
        store.expect(engine.spec.form, engine.spec.fingerprint)
        self._refused = Refused()
        self.system = SystemKV(self.kvgen, store, self._refused)

    def ingest(self, system: System, chunks: Iterable[Chunk], opening: Sequence[Chunk] = ()) -> Iterator[Variant]:
        """Capture a document's chunks in order and store each variant; yields what was stored, one at a time.
        `opening`: chunks of another text that stands before it, which are computed behind System alone unless they
        have been, and their KV is stored too.

        Of a chunk that has as many variants as are kept (boilerplate of many documents), the one that fits best serves
        instead, also as the context of those behind it: a new one would only push another out.

        Raises StoreError when the store is full or not writable; chunks yielded before are kept.
        """
        behind = self.system_variant(system)
        served: set[VariantKey] = set()

        def stored(system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant | None:
            found = self._enough(system, context, chunk)
            if found is not None:
                served.add(found.key)
            return found

        opened: list[Variant] = []
        for variant, is_new in self._opening(behind, opening if self.kvgen.context_chunks else ()):
            opened.append(variant)
            if is_new:
                yield variant
        for variant in self.kvgen.ingest(behind, chunks, stored, opened):
            if variant.key not in served:
                self.store.put(variant, wanted=True)
            yield variant

    def _opening(self, system: Variant, chunks: Iterable[Chunk]) -> Iterator[tuple[Variant, bool]]:
        """Each behind System and those before it alone, and whether it is new, and stored by now."""
        opened: deque[Variant] = deque(maxlen=self.kvgen.context_chunks)
        for chunk in chunks:
            before = visible(opened, border_behind(system.key.border, chunk))
            key = address_of(self.engine.spec.fingerprint, [(one.key, one.ids) for one in (system, *before)], chunk)
            there = fetched(self.store, key, [])
            variant = there.variant if there else self._enough(system, before, chunk)
            is_new = variant is None
            if variant is None:
                try:
                    variant = self.kvgen.capture(system, before, chunk)
                except PromptError:
                    continue  # another text's, too long for any prompt
                self.store.put(variant, wanted=True)
            opened.append(variant)
            yield variant, is_new

    def _enough(self, system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant | None:
        """The best of a chunk's variants, if there are as many as are kept. Its lead stays, so that is computed, unless
        a single one is kept: a lead would take its place.
        """
        border = border_behind(system.key.border, chunk)
        lead = lead_address(self.engine.spec.fingerprint, system.key.chunk, chunk.hash, border)
        prefix = Prefix(variant.key.chunk for variant in context)
        place = ChunkSurroundings(prefix, system.key.chunk, system_exact=system.lossless)
        found, most = candidates(stored_variants(self.store, lead, []), place), self.store.most_variants
        if len(found) < most or (most > 1 and not context and found[0].info.key.context):
            return None
        for candidate in found:
            with suppress(CorruptEntry, ForeignEntry):  # out of the way by now
                if (brought := self.store.get(candidate.info.key)) is not None:
                    return brought.variant
        return None

    def system_variant(self, system: System) -> Variant:
        """The System segment's KV, from the store or computed (and stored) now."""
        return self.system.fetched(system, []).variant


def fetched(store: KVStore, key: VariantKey, incidents: list[str]) -> Fetched | None:
    """What the store has, if it is there and sound."""
    try:
        return store.get(key)
    except StoreError as error:
        told = f"cache entry not used: {error}"
        logger.warning("%s", told)
        if not any(key.digest in one for one in incidents):  # by whoever planned with it
            incidents.append(told)
        return None


def keep(variant: Variant, put: Callable[[Variant], object], refused: Refused, incidents: list[str]) -> None:
    """An answer does not fail because its KV cannot be `put` into the store."""
    try:
        put(variant)
    except StoreError as error:
        refused.add(variant.key.chunk)
        logger.warning("KV not stored: %s", error)
        incidents.append(f"KV not stored: {error}")
