"""`ragcache bench retrieval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def retrieval(
    vectors: Annotated[str, typer.Option(help="Sizes to measure, with commas between them.")] = "10000,100000,1000000",
    indexes: Annotated[str, typer.Option(help="auto, flat, hnsw, ivf, with commas between them.")] = "auto",
    dimension: Annotated[int, typer.Option(min=2, help="Of the vectors.")] = 384,
    clusters: Annotated[int, typer.Option(min=1, help="That the vectors and the queries are drawn from.")] = 1000,
    spread: Annotated[float, typer.Option(min=0.0, help="Of a cluster, against a distance of 1 to its centre.")] = 1.0,
    queries: Annotated[int, typer.Option(min=1, help="Asked one at a time; none is one of the vectors.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn at random.")] = 0,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/retrieval.json"),
) -> None:
    """What an index of vectors finds of what brute force finds, and how quickly."""
    from benchmarks.choices import parse_numbers
    from benchmarks.retrieval import RetrievalBenchOptions, run
    from ragcache.errors import ConfigError
    from retriever.vectors import check_name

    sizes = parse_numbers(vectors, "vectors")
    if min(sizes) < 10:
        raise ConfigError(f"--vectors {vectors!r}: give at least 10, since 10 are looked for")
    names = tuple(check_name(name.strip()) for name in indexes.split(","))
    run(RetrievalBenchOptions(sizes, names, dimension, clusters, spread, queries, seed), json)
