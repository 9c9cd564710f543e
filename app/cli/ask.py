"""`ragcache ask`."""

from __future__ import annotations

from typing import Annotated

import typer

from app.answering import RagPipeline
from app.cli.answer_output import show_answer
from app.cli.flags import CacheDir, DataDir, Device, Dtype, Engine, Json, Model, Name, configure
from app.cli.output import print_json

TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="How many chunks the question retrieves.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer, in tokens.")]
Linker = Annotated[str | None, typer.Option(help="Which tokens of cached chunks are computed again.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compute the whole prompt, as without RAGCache.")]
ShowReport = Annotated[
    bool, typer.Option("--show-report/--no-show-report", help="Tell on stderr what was reused and how long it took.")
]


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    collection: Name = None,
    top_k: TopK = None,
    linker: Linker = None,
    no_cache: NoCache = False,
    max_tokens: MaxTokens = None,
    as_json: Json = False,
    show_report: ShowReport = True,
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
    data_dir: DataDir = None,
) -> None:
    """Answer a question from the documents of a collection, with citations."""
    settings = configure(
        collection=collection, top_k=top_k, max_tokens=max_tokens, linker="full" if no_cache else linker,
        engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir, data_dir=data_dir,
    )  # fmt: skip

    with RagPipeline(settings) as pipeline, pipeline.stream(question) as stream:
        if as_json:
            print_json(stream.answer.to_dict())
        else:
            show_answer(stream, show_report)
