"""What variants from serving are worth: a stream of questions over one collection, with and without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.choices import parse_linkers, some_of
from benchmarks.options import CHUNK_TOKENS, LINKERS, SEED, BenchOptions, option
from ragcache.linking.base import Linker

INGEST, SERVING, ORDERED = SYSTEMS = ("ingest", "serving", "ordered")


@dataclass(frozen=True)
class RefiningBenchOptions(BenchOptions):
    """How near answers are, and what is repaired for them, when chunks are computed in the contexts of prompts."""

    linkers: Mapping[str, Linker] = option("auto,auto:ratio=0.05,cci,cci:alpha=0.5,naive", LINKERS, read=parse_linkers)
    systems: tuple[str, ...] = option(
        f"{INGEST},{SERVING}",
        "Where variants come from; ordered is serving, whose prompts stand as what is cached fits best.",
        read=some_of(*SYSTEMS),
    )
    limit: int = option(300, "Questions, none of which comes again.", least=4)
    top_k: int = option(8, "Chunks of a prompt.", least=1)
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=16)
    times: int = option(2, "That a chunk is linked out of its context before it is computed in it.", least=1)
    steps: int = option(16, "Tokens of the answers that are compared.", least=1)
    seed: int = option(0, SEED, least=0)
    data: Path = option(MISSING, "Corpora with questions, or questions with passages.", kind=Path, told=False)
