"""`ragcache bench chunking`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Model, configure


def chunking(
    corpora: Annotated[Path, typer.Option(help="Folder of the texts that the questions name.")],
    questions: Annotated[Path, typer.Option(help="JSON lines with corpus, question and references.")],
    top_k: Annotated[int, typer.Option(min=1, help="Chunks that are retrieved for a question.")] = 5,
    min_tokens: Annotated[int, typer.Option(min=1, help="Fewest tokens of a chunk of ours.")] = 32,
    max_tokens: Annotated[int, typer.Option(min=8, help="Most tokens of a chunk of ours.")] = 256,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/chunking.json"),
    model: Model = None,
    device: Device = None,
    cache_dir: CacheDir = None,
) -> None:
    """How much of an answer is in the chunks that are retrieved for its question, by splitter."""
    settings = configure(model=model, device=device, cache_dir=cache_dir)
    from app.chat_template import load_tokenizer
    from app.ingestion.boundaries import boundary_embedder
    from app.loading import load_embedder
    from app.models import resolve_model
    from benchmarks.chunking import ChunkingBenchOptions, Embeddings, run
    from splitter.base import ChunkLimits
    from splitter.tokens import FastTokens

    options = ChunkingBenchOptions(top_k, ChunkLimits(min_tokens, max_tokens))
    tokens = FastTokens(load_tokenizer(resolve_model(settings.model, settings.cache_dir)))
    described = {"model": settings.model, "embedder": settings.embedder}
    embeddings = Embeddings(load_embedder(settings).embed, boundary_embedder(settings).embed)
    run(corpora, questions, tokens, embeddings, options, described, json)
