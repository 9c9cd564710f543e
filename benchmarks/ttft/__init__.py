"""Time to the first token of prompts of given lengths.

On the torch engine "disk" means files that this process has just written, so the system's page cache holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_linkers, parse_numbers
from benchmarks.options import CHUNK_TOKENS, DATA, LINKERS, OF_SETTINGS, ROUNDS, SEED, TOKENS, BenchOptions, option
from ragcache.linking.base import Linker


@dataclass(frozen=True)
class TtftBenchOptions(BenchOptions):
    """Time to the first token: recomputed, placed only, and linked from RAM and from disk."""

    of_settings = OF_SETTINGS

    tokens: tuple[int, ...] = option("1024,2048,4096", TOKENS, read=parse_numbers)
    linkers: Mapping[str, Linker] = option("auto,fast", LINKERS, read=parse_linkers)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    rounds: int = option(7, ROUNDS, least=1)
    seed: int = option(0, SEED)
    beside: int = option(0, "Also beside so many other processes at full load.", least=0)
