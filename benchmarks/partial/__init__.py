"""Prompts of which a part is cached, against the same prompts recomputed.

Nobody should wait longer than without a cache, however little of a prompt it holds, so chunks are linked as by an
application: where that is predicted to be sooner. Both sides of a round come right after each other, and the ratio is
that of the round. "Busy" is beside requests that decode all the time, "keeping" behind the same prompt, amid the
capture of what it lacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_linker, parse_numbers, parse_percents, some_of
from benchmarks.options import CHUNK_TOKENS, DATA, LINKER, OF_SETTINGS, ROUNDS, SEED, TOKENS, BenchOptions, option

IDLE, BUSY, KEEPING = BESIDE = ("idle", "busy", "keeping")


@dataclass(frozen=True)
class PartialBenchOptions(BenchOptions):
    """First tokens of prompts of which a part is cached, against a full recompute; idle, and beside others."""

    of_settings = OF_SETTINGS

    cached: tuple[int, ...] = option(
        "0,5,25,50,75,100", "Percent of the chunks that are cached, with commas.", read=parse_percents
    )
    tokens: tuple[int, ...] = option("1024,4096", TOKENS, read=parse_numbers)
    beside: tuple[str, ...] = option(",".join(BESIDE), "idle, busy and keeping, with commas.", read=some_of(*BESIDE))
    decoding: int = option(8, "Requests that decode beside, where it is busy.", least=1)
    linker: str = option("auto", LINKER, read=parse_linker)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    rounds: int = option(15, ROUNDS, least=1)
    seed: int = option(0, SEED)
