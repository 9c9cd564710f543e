"""vLLM under load: stock, with its prefix cache, and linked, each given the same requests at the same moments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import CONTEXTS, one_of, parse_linker, parse_positive, some_of
from benchmarks.options import CHUNK_TOKENS, DATA, LINKER, SEED, BenchOptions, option

SYSTEMS = ("stock", "prefix", "linked")


def parse_loads(text: str, flag: str) -> tuple[float, ...]:
    """Ascending."""
    return tuple(sorted(set(parse_positive(text, flag))))


@dataclass(frozen=True)
class LoadBenchOptions(BenchOptions):
    """vLLM under requests that arrive at random: stock, with its prefix cache, and linked."""

    data: Path | None = option(None, DATA, kind=Path, told=False)
    systems: tuple[str, ...] = option(
        ",".join(SYSTEMS), "stock, prefix and linked, with commas.", read=some_of(*SYSTEMS)
    )
    loads: tuple[float, ...] = option(
        "0.5,0.75,1,1.5,2", "Rates, as multiples of stock's saturation.", read=parse_loads
    )
    seconds: float = option(120.0, "How long requests arrive in each case.", least=0.1)
    burst: int = option(16, "Requests at once, to measure saturation.", least=1)
    chunks: int = option(10, "Chunks per request.", least=1)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    answer_tokens: int = option(32, "Length of every answer.", least=1)
    population: int = option(200, "Different chunks, at most.", least=1)
    zipf: float = option(1.0, "Exponent of their popularity; 0 is none.", least=0.0)
    linker: str = option("auto", LINKER, read=parse_linker)
    context: str = option("document", "What chunks are computed behind: alone or document.", read=one_of(*CONTEXTS))
    seed: int = option(0, SEED)
