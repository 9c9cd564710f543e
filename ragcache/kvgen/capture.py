"""KVGen: the KV of every chunk of a document, captured once, in the context of the chunks before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ragcache.address import MOST_CONTEXT, border_behind, system_address, visible
from ragcache.engine.base import Engine
from ragcache.errors import ConfigError
from ragcache.kvgen.keeping import Pause
from ragcache.types import Chunk, System, Variant, VariantKey

# A variant that is stored already and serves a chunk behind System and these; None where one is to be computed.
Stored = Callable[[Variant, Sequence[Variant], Chunk], Variant | None]


def nothing_stored(system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant | None:
    return None


# Lead variants cost a second pass with little attention. A document of so many tokens can afford it: its plain prefill,
# whose attention grows with each token, takes about as long as both passes together (docs/benchmarks.md). In a shorter
# one the first use of a chunk at the head of a prompt captures it, after the answer.
LEAD_TOKENS = 5000


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

    def ingest(self, system: Variant, chunks: Iterable[Chunk], stored: Stored = nothing_stored) -> Iterator[Variant]:
        """All variants that a document is worth: those of `document`, and from LEAD_TOKENS on each chunk's lead
        variant: the chunk right behind System, for prompts that it leads. All of its context is gone there, so any
        other variant has its largest error.
        """
        waiting: list[Chunk] = []  # chunks whose lead variant is still to come
        tokens = 0
        for variant in self.document(system, chunks, stored):
            yield variant
            tokens += len(variant)
            if variant.key.context:
                waiting.append(Chunk(variant.ids, variant.key.border))
            if tokens >= LEAD_TOKENS:
                yield from (stored(system, [], lead) or self.capture(system, [], lead) for lead in waiting)
                waiting = []

    def document(self, system: Variant, chunks: Iterable[Chunk], stored: Stored = nothing_stored) -> Iterator[Variant]:
        """The chunks' variants in document order, each computed once over the *stored* KV of those before it."""
        context: deque[Variant] = deque(maxlen=self.context_chunks)
        for chunk in chunks:
            before = visible(context, border_behind(system.key.border, chunk))
            variant = stored(system, before, chunk) or self.capture(system, before, chunk)
            yield variant
            context.append(variant)

    def capture(self, system: Variant, context: Sequence[Variant], chunk: Chunk) -> Variant:
        """One chunk behind `system` and `context`, whose KV is taken as it is stored."""
        return self.engine.capture([system, *context], chunk, self._pause)
