"""Capturing a document's KV, chunk by chunk in its context, against a plain prefill of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import parse_numbers
from benchmarks.options import CHUNK_TOKENS, DATA, OF_SETTINGS, ROUNDS, TOKENS, BenchOptions, option


@dataclass(frozen=True)
class KvgenBenchOptions(BenchOptions):
    """Capturing a document's KV against a plain prefill of it."""

    of_settings = OF_SETTINGS

    tokens: tuple[int, ...] = option("2000,4000", TOKENS, read=parse_numbers)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    rounds: int = option(5, ROUNDS, least=1)
