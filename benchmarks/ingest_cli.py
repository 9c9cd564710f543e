"""`ragcache bench ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Model, configure


def ingest(
    cases: Annotated[str, typer.Option(help="unchanged, embed, kv, with commas between them.")] = "unchanged,embed,kv",
    unchanged_documents: Annotated[int, typer.Option(min=1, help="Files that are in already.")] = 1000,
    embed_documents: Annotated[int, typer.Option(min=1, help="Files that are ingested without KV.")] = 16,
    kv_documents: Annotated[int, typer.Option(min=1, help="Files that are ingested with KV.")] = 4,
    data: Annotated[Path | None, typer.Option(help="Where words come from, as for quality; or the samples.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with every case once.")] = 3,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/ingest.json"),
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """What an ingest takes beside its models alone, and when nothing has changed."""
    settings = configure(model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks.corpus import read_texts
    from benchmarks.ingest import IngestBenchOptions, parse_cases, run

    options = IngestBenchOptions(parse_cases(cases), unchanged_documents, embed_documents, kv_documents, rounds, seed)
    run(settings, read_texts(data), options, json)
