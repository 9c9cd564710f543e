"""`ragcache bench partial`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Engine, Model, configure


def partial(
    cached: Annotated[str, typer.Option(help="Percent of the chunks that are cached, with commas.")] = (
        "0,5,25,50,75,100"
    ),
    tokens: Annotated[str, typer.Option(help="Lengths to measure, with commas between them.")] = "1024,4096",
    beside: Annotated[str, typer.Option(help="idle, busy and keeping, with commas.")] = "idle,busy,keeping",
    decoding: Annotated[int, typer.Option(min=1, help="Requests that decode beside, where it is busy.")] = 8,
    linker: Annotated[str, typer.Option(help="Of the linked requests.")] = "auto",
    data: Annotated[Path | None, typer.Option(help="As for quality; the sample documents when left out.")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with every case once.")] = 15,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/partial.json"),
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """First tokens of prompts of which a part is cached, against a full recompute; idle, and beside others."""
    settings = configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks import torch_partial, vllm_partial
    from benchmarks.choices import parse_names, parse_numbers, parse_percents
    from benchmarks.corpus import read_texts
    from benchmarks.partial_cache import BESIDE, PartialBenchOptions
    from ragcache.linking import make_linker

    make_linker(linker)  # a wrong name is said now
    options = PartialBenchOptions(
        tokens=parse_numbers(tokens, "tokens"),
        cached=parse_percents(cached, "cached"),
        beside=parse_names(beside, "beside", BESIDE),
        decoding=decoding,
        linker=linker,
        chunk_tokens=chunk_tokens,
        rounds=rounds,
        seed=seed,
    )
    run = vllm_partial.run if settings.engine == "vllm" else torch_partial.run
    run(settings, read_texts(data), options, json)
