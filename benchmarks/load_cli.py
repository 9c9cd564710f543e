"""`ragcache bench load`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Model, configure


def load(
    data: Annotated[Path | None, typer.Option(help="As for quality; the sample documents when left out.")] = None,
    systems: Annotated[str, typer.Option(help="stock, prefix and linked, with commas.")] = "stock,prefix,linked",
    loads: Annotated[str, typer.Option(help="Rates, as multiples of stock's saturation.")] = "0.5,0.75,1,1.5,2",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long requests arrive in each case.")] = 120.0,
    burst: Annotated[int, typer.Option(min=1, help="Requests at once, to measure saturation.")] = 16,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks per request.")] = 10,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longest chunk.")] = 200,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of every answer.")] = 32,
    population: Annotated[int, typer.Option(min=1, help="Different chunks, at most.")] = 200,
    zipf: Annotated[float, typer.Option(min=0.0, help="Exponent of their popularity; 0 is none.")] = 1.0,
    linker: Annotated[str, typer.Option(help="Of the linked requests.")] = "auto",
    context: Annotated[str, typer.Option(help="What chunks are computed behind: alone or document.")] = "document",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/load.json"),
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """vLLM under requests that arrive at random: stock, with its prefix cache, and linked."""
    settings = configure(engine="vllm", model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks.caches import check_context
    from benchmarks.corpus import read_texts
    from benchmarks.load import LoadBenchOptions, check_loads, check_systems
    from benchmarks.vllm_load import run
    from ragcache.linking import make_linker

    make_linker(linker)  # a wrong name is said now
    options = LoadBenchOptions(
        systems=check_systems(systems),
        loads=check_loads(loads),
        seconds=seconds,
        burst=burst,
        chunks=chunks,
        chunk_tokens=chunk_tokens,
        answer_tokens=answer_tokens,
        population=population,
        zipf=zipf,
        linker=linker,
        context=check_context(context),
        seed=seed,
    )
    run(settings, read_texts(data), options, json)
