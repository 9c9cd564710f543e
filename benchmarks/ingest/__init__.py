"""An ingest against the models at its heart, and one that finds nothing to do.

| case | measured | baseline |
|---|---|---|
| unchanged | the whole command, over files that are in already | the ingest that brought them in |
| embed | an ingest without KV | the embedder alone, over the same texts: chunks, and each sentence once |
| kv | an ingest with KV, to the disk | a plain prefill of each document, behind the System segment |

The ratio is that of the throughputs: baseline_s / seconds. Models are loaded before, except for `unchanged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices import some_of
from benchmarks.options import ROUNDS, SEED, BenchOptions, option

CASES = ("unchanged", "embed", "kv")


@dataclass(frozen=True)
class IngestBenchOptions(BenchOptions):
    """What an ingest takes beside its models alone, and when nothing has changed."""

    cases: tuple[str, ...] = option(
        ",".join(CASES), "unchanged, embed, kv, with commas between them.", read=some_of(*CASES)
    )
    unchanged_documents: int = option(1000, "Files that are in already.", least=1)
    embed_documents: int = option(16, "Files that are ingested without KV.", least=1)
    kv_documents: int = option(4, "Files that are ingested with KV.", least=1)
    data: Path | None = option(None, "Where words come from, as for quality; or the samples.", kind=Path, told=False)
    rounds: int = option(3, ROUNDS, least=1)
    seed: int = option(0, SEED)
