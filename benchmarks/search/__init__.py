"""What a question costs before its first token can be computed: finding its chunks.

Questions and first tokens come in turns, as they do for a user: each drives the other out of the processor's caches.
The chunks are made up (data.py); what is timed is the whole of RagPipeline.retrieve.

| column | what is in it |
|---|---|
| embed_ms | the question's vector |
| search_ms | both indexes and their fusion, without the vector |
| rows_ms | the rest: a look at the collection, and the chunks themselves from SQL |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import DATA, SEED, BenchOptions, option


@dataclass(frozen=True)
class SearchBenchOptions(BenchOptions):
    """What finding the chunks of a question adds to its first token, in a large collection of synthetic chunks."""

    chunks: int = option(100_000, "Of the collection; made up, of 135 words each.", least=1)
    questions: int = option(50, "Distinct ones, about what the chunks are about.", least=1)
    tokens: int = option(1024, "Of the prompt whose first token follows each question.", least=1)
    rounds: int = option(2, "Rounds, each with every question once.", least=1)
    data: Path | None = option(None, DATA, kind=Path, told=False)
    chunk_tokens: int = option(200, "Longest chunk of the prompt.", least=1)
    seed: int = option(0, SEED)
