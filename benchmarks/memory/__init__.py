"""Peak resident memory, each case in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.options import OF_SETTINGS, BenchOptions, option


@dataclass(frozen=True)
class MemoryBenchOptions(BenchOptions):
    """Peak resident memory of ingesting a document to disk, and of linking its chunks."""

    of_settings = OF_SETTINGS

    megabytes: float = option(1.0, "Size of the document.", least=0.001)
    chunks: int = option(5, "Chunks of the prompt that is linked.", least=1)
