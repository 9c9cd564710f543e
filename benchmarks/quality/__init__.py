"""What linking costs in answers, against the full recompute of the same prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.choices import CONTEXTS, one_of, some_of
from benchmarks.options import CHUNK_TOKENS, LINKERS, OF_SETTINGS, ROUNDS, SEED, BenchOptions, option
from benchmarks.quality.baselines import Method, parse_methods
from splitter import SPLITTERS

ORDERS = ("document", "collection", "best", "shuffled")
NO_POOL, PIECES, FIRST = POOLS = ("none", "pieces", "first")
SPLITTER = "fixed"
QUESTION = "question"
SHAPE_NAMES = (QUESTION, "summary", "classes", "needle", "truth")


@dataclass(frozen=True)
class QualityBenchOptions(BenchOptions):
    """What linking costs in answers, and what it saves until the first token."""

    of_settings = OF_SETTINGS

    data: Path = option(
        MISSING, "JSON lines with contexts, or a folder of corpora with questions.", kind=Path, told=False
    )
    linkers: Mapping[str, Method] = option(
        "auto",
        f"{LINKERS} Baselines too, on the torch engine: set, whose chunks are re-ordered to begin as an earlier prompt "
        "did, and compress:ratio=0.12, which drops the tokens that say least.",
        read=parse_methods,
    )
    contexts: tuple[str, ...] = option(
        ",".join(CONTEXTS),
        "What chunks are computed behind: alone, document or both.",
        read=some_of(*CONTEXTS),
        flag="context",
    )
    limit: int | None = option(None, "So many questions, at random; all when left out.", kind=int, least=1)
    seed: int = option(0, SEED)
    max_tokens: int = option(64, "Longest answer.", least=1)
    top_k: int = option(5, "Chunks per question, where they are retrieved.", least=1)
    order: str = option(
        "document",
        "Of retrieved chunks: as they stand in their document or came (document), as in the collection, best first "
        "(best), or shuffled.",
        read=one_of(*ORDERS),
    )
    chunk_tokens: int = option(200, CHUNK_TOKENS, least=1)
    ttft_rounds: int = option(5, ROUNDS, least=1)
    ttft_prompts: int = option(3, "So many prompts are timed.", least=1)
    splitters: tuple[str, ...] = option(
        SPLITTER,
        "What cuts the texts, with commas between them; given passages within --chunk-tokens stay whole.",
        read=some_of(*SPLITTERS),
        flag="splitter",
    )
    pool: str = option(
        NO_POOL,
        "Passages as one collection from which each question retrieves: cut into documents of at most --chunk-tokens "
        "(pieces), or only the first piece of each (first).",
        read=one_of(*POOLS),
    )
    led: bool = option(
        False,
        "Each prompt came before: its first chunk was captured behind the System segment alone, as an answer does.",
    )
    shape: str = option(
        QUESTION,
        "What is asked of the retrieved chunks: the question, a summary, which passage a sentence is from (classes), a "
        "code that one of them bears (needle), or whether they say a sentence (truth).",
        read=one_of(*SHAPE_NAMES),
    )
    resume: bool = option(False, "Continue a run that was interrupted.", told=False)
    compare: Path | None = option(
        None,
        "The --json of a run in another engine or codec, to be compared question by question.",
        kind=Path,
        told=False,
    )
