"""`ragcache bench search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Model, configure


def search(
    chunks: Annotated[int, typer.Option(min=1, help="Of the collection; made up, of 135 words each.")] = 100_000,
    questions: Annotated[int, typer.Option(min=1, help="Distinct ones, about what the chunks are about.")] = 50,
    tokens: Annotated[int, typer.Option(min=1, help="Of the prompt whose first token follows each question.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with every question once.")] = 2,
    data: Annotated[Path | None, typer.Option(help="As for quality; the sample documents when left out.")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk of the prompt.")] = 200,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/search.json"),
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """What finding the chunks of a question adds to its first token, in a large collection of synthetic chunks."""
    settings = configure(model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks.corpus import read_texts
    from benchmarks.search import SearchBenchOptions, run

    run(settings, read_texts(data), SearchBenchOptions(chunks, questions, tokens, rounds, chunk_tokens, seed), json)
