"""Cold KV: computed, loaded, and both at once, on a disk and beside others as slow as in the paper's set-ups.

A bandwidth of the paper (table 3: an A100, LongAlpaca-13B, 16k tokens) stands for that ratio of loading to computing,
whatever this machine's own speeds are: at 7 Gbps loading takes 4.6 times as long as computing on the whole device. A
utilisation of 0.5 lets the engine compute for half of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_linker, parse_names, parse_numbers, some_of
from benchmarks.options import CHUNK_TOKENS, DATA, LINKER, ROUNDS, SEED, TOKENS, BenchOptions, option
from ragcache.errors import ConfigError

EXACT, _ = KINDS = ("exact", "chunks")
# Seconds of loading over seconds of computing, times Gbps: 5.62 and 1.21 times of Cake's own at 7 Gbps.
PAPER_RATIO = 5.62 / 1.21 * 7.0


def parse_positive(text: str, flag: str) -> tuple[float, ...]:
    try:
        found = tuple(float(one) for one in parse_names(text, flag))
    except ValueError as error:
        raise ConfigError(f"--{flag} {text!r}: give numbers such as 7,25,100") from error
    if not all(0 < one < float("inf") for one in found):
        raise ConfigError(f"--{flag} {text!r}: give numbers above 0")
    return found


def parse_utilisation(text: str, flag: str) -> tuple[float, ...]:
    found = parse_positive(text, flag)
    if max(found) > 1:
        raise ConfigError(f"--{flag} {text!r}: give shares of the device, up to 1")
    return found


@dataclass(frozen=True)
class CakeBenchOptions(BenchOptions):
    """Cold KV: computed, loaded, or both at once from the two ends, at the ratios of Cake's paper."""

    kinds: tuple[str, ...] = option(
        ",".join(KINDS), "exact (a prefix as it was captured) and chunks (linked), with commas.", read=some_of(*KINDS)
    )
    bandwidths: tuple[float, ...] = option("7,25,32,56,100", "Of the paper, in Gbps.", read=parse_positive)
    utilisations: tuple[float, ...] = option("0.125,0.5,1", "Shares of the device.", read=parse_utilisation)
    tokens: tuple[int, ...] = option("2048", TOKENS, read=parse_numbers)
    linker: str = option("auto", LINKER, read=parse_linker)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    rounds: int = option(5, ROUNDS, least=1)
    seed: int = option(0, SEED)
