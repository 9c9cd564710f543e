"""A real `ragcache serve` under clients that stream: without any cache, with a prefix cache, and with linked chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.choices import one_of, parse_numbers, parse_positive, some_of
from benchmarks.options import CHUNK_TOKENS, DATA, OF_SETTINGS, SEED, BenchOptions, option
from ragcache.errors import ConfigError
from ragcache.report import FULL

CLOSED, RAGPULSE = ARRIVALS = ("closed", "ragpulse")


@dataclass(frozen=True)
class ServeSystem:
    """What its server is started with, and how its clients ask."""

    settings: Mapping[str, str] = field(default_factory=dict)
    caches: bool = True  # passages are context caches; else they are sent as the texts that they are
    apart: bool = False  # each prompt begins with a number of its own, so that no prefix of it was there before


# What every other one is compared with stands last.
SERVE_SYSTEMS: Mapping[str, ServeSystem] = {
    "stock": ServeSystem({"kv": "off", "linker": FULL}, caches=False, apart=True),
    "prefix": ServeSystem(caches=False),
    "epic": ServeSystem({"linker": "first_tokens"}),
    "cacheblend": ServeSystem({"linker": "cacheblend"}),
    "linked": ServeSystem({"linker": "auto"}),
}


def parse_shares(text: str, flag: str) -> tuple[float, ...]:
    """Each above 0, and 1 at most."""
    found = parse_positive(text, flag)
    if max(found) > 1:
        raise ConfigError(f"--{flag} {text!r}: a share is 1 at most")
    return found


@dataclass(frozen=True)
class ServeBenchOptions(BenchOptions):
    """Streaming clients of a server: stock, with prefix caching, EPIC, CacheBlend and linked."""

    of_settings = OF_SETTINGS

    data: Path | None = option(None, DATA, kind=Path, told=False)
    trace: Path | None = option(None, "Of ragpulse: JSON lines with the seconds `t`.", kind=Path, told=False)
    systems: tuple[str, ...] = option(",".join(SERVE_SYSTEMS), "Of these, with commas.", read=some_of(*SERVE_SYSTEMS))
    clients: tuple[int, ...] = option("1,8,50", "How many ask at a time, with commas.", read=parse_numbers)
    seconds: float = option(60.0, "How long requests are begun in each case.", least=0.1)
    rounds: int = option(3, "Parts of that, in which the systems take turns.", least=1)
    arrivals: str = option(
        CLOSED,
        "closed (a client asks again when its answer has ended) or ragpulse (as in --trace).",
        read=one_of(*ARRIVALS),
    )
    rate: float = option(0.1, "Of ragpulse: requests per second and client.", least=1e-6)
    ccr: tuple[float, ...] = option(
        "0.95", "Shares of a prompt that are passages known before, with commas.", read=parse_shares
    )
    tokens: int = option(1024, "Length of every prompt.", least=1)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    population: int = option(60, "Different passages, at most.", least=1)
    zipf: float = option(1.0, "Exponent of their popularity; 0 is none.", least=0.0)
    answer_tokens: int = option(16, "Length of every answer.", least=1)
    warm: int = option(16, "Requests to each system before its first one counts.", least=0)
    seed: int = option(0, SEED)
