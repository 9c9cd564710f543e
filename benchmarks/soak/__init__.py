"""A real `ragcache serve` for long, under clients that upload, delete, go away amid answers, and are killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import DATA, OF_SETTINGS, SEED, BenchOptions, option


@dataclass(frozen=True)
class SoakBenchOptions(BenchOptions):
    """A server for long, under clients that upload, delete, leave amid answers and are killed; nothing is lost."""

    of_settings = OF_SETTINGS

    data: Path | None = option(None, DATA, kind=Path, told=False)
    minutes: float = option(30.0, "How long clients come.", least=0.01)
    answer_tokens: int = option(24, "Length of every answer.", least=1)
    documents: int = option(12, "As many are kept; with one more the oldest is deleted.", least=1)
    seed: int = option(0, SEED)
