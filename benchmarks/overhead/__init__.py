"""What a first token costs more through the server than from the engine in the same process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_numbers
from benchmarks.options import CHUNK_TOKENS, DATA, LINKER, OF_SETTINGS, ROUNDS, TOKENS, BenchOptions, option


@dataclass(frozen=True)
class OverheadBenchOptions(BenchOptions):
    """First tokens through the server and of its engine alone, from the same KV in RAM, in turns."""

    of_settings = OF_SETTINGS

    data: Path | None = option(None, DATA, kind=Path, told=False)
    tokens: tuple[int, ...] = option("2048", TOKENS, read=parse_numbers)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    linker: str = option("auto", LINKER)
    rounds: int = option(15, ROUNDS, least=1)
