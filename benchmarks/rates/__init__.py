"""How quickly KV comes from each tier, and how quickly it is computed: the findings that Cake's paper begins with.

Loading takes time by the bytes, wherever in a prompt they belong (finding 1); computing takes the longer, the later the
position (finding 2); which of the two is quicker is a matter of the machine (finding 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_names, parse_numbers, some_of
from benchmarks.options import DATA, ROUNDS, BenchOptions, option
from ragcache.store.findings import DISK, RAM

PLACES = (RAM, DISK, "cached")


@dataclass(frozen=True)
class RatesBenchOptions(BenchOptions):
    """MB a second from each tier and codec, decoding included, and the seconds of a computing step by position."""

    tiers: tuple[str, ...] = option(
        ",".join(PLACES), "ram; disk, with the system's page cache emptied; cached by it.", read=some_of(*PLACES)
    )
    codecs: tuple[str, ...] = option("bf16,int8,int4", "What the KV is stored in, with commas.", read=parse_names)
    tokens: tuple[int, ...] = option("200,800,1600", "Of what is loaded at once, with commas.", read=parse_numbers)
    context: int = option(4096, "Positions to compute, one step after the other.", least=1)
    step: int = option(512, "Tokens of a step.", least=1)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    rounds: int = option(5, ROUNDS, least=1)
