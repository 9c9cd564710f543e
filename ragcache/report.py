"""What happened to a prompt. Every answer carries one report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from ragcache.timeline import MOST, Stretch

FULL = "full"  # the linker that uses no cache
COMPUTED = "computed"  # the tier of a chunk that no tier had
OTHER = "other"  # the System segment that a chunk's KV was computed behind, where it is not the prompt's
OWN = ("plan", "load", "learn")  # stages that compute nothing with the model and move no KV
PREFIX = "prefix"  # the tier of what vLLM's own prefix cache held, or a stored exact prefix


@dataclass
class ChunkReport:
    """One chunk of the prompt. tokens = reused + repaired + computed."""

    chunk: str  # hash of its ids
    tokens: int
    tier: str  # of the store, COMPUTED or PREFIX
    reused: int = 0
    repaired: int = 0
    computed: int = 0
    exact: bool = False  # same context in the same place, and nothing lost at rest: reused with no error
    overlap: float = 0.0  # β', how much of the variant's context the prompt holds
    nbytes: int = 0  # read from the tier
    passed: bool = False  # it was computed, since that was sooner: what a capture would store is there
    system: str = ""  # OTHER: it was reused, and is captured behind the prompt's own after the answer


@dataclass
class Report:
    """Filled in as the prompt goes through plan, load, link and decode."""

    linker: str
    prompt_tokens: int
    before_question: int  # tokens up to the end of the last chunk
    question_tokens: int
    system_tier: str = COMPUTED
    chunks: list[ChunkReport] = field(default_factory=list)
    other_computed: int = 0  # System when it was not cached, and texts between chunks
    charged: float = 0.0  # token passes beside the repair itself: probes and full layers, in tokens through all layers
    predicted: float | None = None  # how far the answer is off, in nats a token, where the linker predicts it
    declined: int = 0  # cached tokens that were computed all the same, since linking them would have been no sooner
    planned_s: float | None = None  # the time to the first token, behind what went before the engine, as foretold
    seconds: dict[str, float] = field(default_factory=dict)  # per stage
    ttft_s: float = 0.0
    answer_tokens: int = 0
    decode_s: float = 0.0
    incidents: list[str] = field(default_factory=list)  # what went wrong and was worked around
    timeline: list[Stretch] = field(default_factory=list)  # what was done when
    prefix_tokens: int = 0  # of the whole prompt, those whose KV came from a stored exact prefix or vLLM's prefix cache
    question_cached: int = 0  # of the question's tokens, those among them
    seed: int | None = None  # that the answer was sampled with, where the application knows

    @property
    def reused(self) -> int:
        return sum(chunk.reused for chunk in self.chunks)

    @property
    def repaired(self) -> int:
        return sum(chunk.repaired for chunk in self.chunks)

    @property
    def computed(self) -> int:
        return sum(chunk.computed for chunk in self.chunks) + self.other_computed

    @property
    def cached(self) -> int:
        """Of the prompt's tokens, those that were not computed for it, wherever their KV came from."""
        return self.before_question - self.repaired - self.computed + self.question_cached

    @property
    def part(self) -> float:
        """Share of the tokens before the question that were computed, with every probe charged."""
        return (self.repaired + self.computed + self.charged) / self.before_question if self.before_question else 1.0

    @property
    def own_s(self) -> float | None:
        """Of all bookkeeping, beside what is computed and placed, where nothing had to be read; None where the engine
        does not tell.
        """
        told = [self.seconds[name] for name in OWN if name in self.seconds]
        return sum(told) if told else None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

    def note(self, stretch: Stretch) -> None:
        if len(self.timeline) < MOST:
            self.timeline.append(stretch)

    def to_dict(self) -> dict[str, Any]:
        totals = {"reused": self.reused, "repaired": self.repaired, "computed": self.computed, "part": self.part}
        return asdict(self) | totals | {"cached": self.cached}
