"""A long request whose KV is cold, and a burst of ordinary ones right behind it: in order of arrival, and as the
engine takes them (Cake's adaptive scheduling, section 5.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.cake import KINDS
from benchmarks.choices import parse_linker, parse_positive, some_of
from benchmarks.options import CHUNK_TOKENS, DATA, LINKER, ROUNDS, SEED, BenchOptions, option

ALONE, ORDERED, ADAPTIVE = CASES = ("alone", "ordered", "adaptive")


@dataclass(frozen=True)
class BurstBenchOptions(BenchOptions):
    """vLLM: one long cached request from a slow disk, and a burst of ordinary requests behind it."""

    data: Path | None = option(None, DATA, kind=Path, told=False)
    kinds: tuple[str, ...] = option(
        ",".join(KINDS), "exact (a prefix as it was captured) and chunks (linked), with commas.", read=some_of(*KINDS)
    )
    bandwidths: tuple[float, ...] = option("25,32,56", "Of Cake's paper, in Gbps.", read=parse_positive)
    tokens: int = option(4096, "Length of the cached request.", least=1)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    others: int = option(22, "Ordinary requests in the burst.", least=1)
    shortest: int = option(32, "Tokens of an ordinary request, at least.", least=1)
    longest: int = option(448, "And at most.", least=1)
    answer_tokens: int = option(16, "Length of every answer.", least=1)
    after: float = option(0.05, "Seconds from the cached request to the burst.", least=0.0)
    linker: str = option("auto", LINKER, read=parse_linker)
    rounds: int = option(5, ROUNDS, least=1)
    seed: int = option(0, SEED)
