"""Cold KV: computed, loaded, and both at once, on a disk and beside others as slow as in the paper's set-ups.

A bandwidth of the paper (table 3: an A100, LongAlpaca-13B, 16k tokens) stands for that ratio of loading to computing,
whatever this machine's own speeds are: at 7 Gbps loading a prompt in 16 bits takes 4.6 times as long as computing it in
one go on the whole device. So a disk has one speed for all codecs and lengths of chunks, and a random shape of less KV
heads is loaded sooner. A utilisation of 0.5 lets the engine compute for half of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import one_of, parse_linker, parse_names, parse_numbers, parse_positive, some_of
from benchmarks.options import DATA, LINKER, ROUNDS, SEED, TOKENS, BenchOptions, option
from ragcache.errors import ConfigError

EXACT, CHUNKS = KINDS = ("exact", "chunks")
THROTTLED, REAL = DISKS = ("throttled", "real")
SYNC, ASYNC, LAYER = PRELOADS = ("sync", "async", "layer")
MODEL = "model"
SHAPE_NAMES = (MODEL, "mha", "gqa", "gqa8")
# Seconds of loading over seconds of computing, times Gbps: 5.62 and 1.21 times of Cake's own at 7 Gbps.
PAPER_RATIO = 5.62 / 1.21 * 7.0


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
    chunk_tokens: tuple[int, ...] = option("200", "Longest chunks, with commas.", read=parse_numbers)
    codecs: tuple[str, ...] = option("bf16", "What the KV is stored in, with commas.", read=parse_names)
    shapes: tuple[str, ...] = option(
        MODEL, f"The model itself, and random ones: {', '.join(SHAPE_NAMES)}.", read=some_of(*SHAPE_NAMES)
    )
    traces: int = option(0, "Drawn by lot: disk and device change all the time, instead of the grid.", least=0)
    preload: tuple[str, ...] = option(
        SYNC,
        "Loading begins when the engine is free (sync) or while the request waits (async); the upper layers come while "
        "the lower ones are computed over (layer).",
        read=some_of(*PRELOADS),
    )
    wait: float = option(0.54, "A request's wait for the engine, in times that loading takes (async).", least=0.0)
    disk: str = option(
        THROTTLED, "throttled; or real, with the system's page cache emptied, beside linking from RAM.",
        read=one_of(*DISKS),
    )  # fmt: skip
    linker: str = option("auto", LINKER, read=parse_linker)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    plot: Path | None = option(None, "An SVG of what computed and loaded when.", kind=Path, told=False)
    rounds: int = option(5, ROUNDS, least=1)
    seed: int = option(0, SEED)

    @property
    def cost_rounds(self) -> int:
        """In which blocks are measured: a real disk's speed and best meeting point are not asked for."""
        return 1 if self.disk == REAL else self.rounds
