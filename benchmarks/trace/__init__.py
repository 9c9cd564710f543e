"""A trace of a real RAG service, replayed against caches of a bounded size: what is left to compute of its passages,
and when first tokens would come, by costs that are measured on this machine. Nothing of it is computed.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.choices import some_of
from benchmarks.options import DATA, ROUNDS, BenchOptions, option
from benchmarks.serve import parse_shares

NONE, PREFIX, SET, CHUNK = ("none", "prefix", "set", "chunk")
UNBOUNDED = "unbounded"  # what a cache without need of an order is called
POLICIES = ("fifo", "lru", "lfu", "craft", "s3fifo", "tinylfu", "value", "oracle", "belady")


@dataclass(frozen=True)
class TraceBenchOptions(BenchOptions):
    """A trace of requests: without a cache, with ordered prefixes, whole sets, and chunks under orders of eviction."""

    trace: Path = option(MISSING, "JSON lines with system and passages, as [id, tokens], and input_tokens.", kind=Path,
                         told=False)  # fmt: skip
    capacity: tuple[float, ...] = option(
        "0.05,0.1,0.25,0.5,1", "Shares of what all different passages take, with commas.", read=parse_shares
    )
    policies: tuple[str, ...] = option(",".join(POLICIES), "Of chunks, with commas.", read=some_of(*POLICIES))
    memory: float = option(
        0.0, "Share of a capacity that is memory, over a disk of all of it: chunks under the store's orders alone. "
        "0: what there is is memory.", least=0.0,
    )  # fmt: skip
    skip: float = option(0.0, "Share of the requests that come first, fill the caches and do not count.", least=0.0)
    part: float = option(0.1, "Share of a linked chunk's tokens that is computed again.", least=0.0)
    context: int = option(2048, "Positions to measure the computing at.", least=512)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    rounds: int = option(5, ROUNDS, least=1)
