"""`ragcache ask`, and how answers are shown: what was asked for on stdout, how it came about on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from app.answering import Answer, AnswerStream, RagPipeline, told
from app.answering.answer import Citation
from app.cli.flags import CacheDir, DataDir, Device, Dtype, Engine, Json, Model, Name, configure
from app.cli.output import plain, print_json

TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="How many chunks the question retrieves.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer, in tokens.")]
Linker = Annotated[str | None, typer.Option(help="Which tokens of cached chunks are computed again.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compute the whole prompt, as without RAGCache.")]
ShowReport = Annotated[
    bool, typer.Option("--show-report/--no-show-report", help="Tell on stderr what was reused and how long it took.")
]
SHORT = 100  # characters of a quote


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


def show_answer(stream: AnswerStream, report: bool) -> None:
    show_pieces(stream)
    answer = stream.answer
    if answer.citations:
        print()
        show_citations(answer.citations)
    show_report(answer, report)


def show_pieces(pieces: Iterable[str]) -> None:
    """As they come, and a line end behind the last one."""
    try:
        for piece in pieces:
            # A model may write anything, and a terminal obeys some of it.
            print("".join(sign if sign in "\n\t" else plain(sign) for sign in piece), end="", flush=True)
    finally:
        print(flush=True)


def show_citations(citations: Sequence[Citation]) -> None:
    for citation in citations:
        print(f"[{citation.number}] {plain(citation.place)}")
        if citation.quote is not None:
            print(f"    “{plain(shortened(citation.quote.text))}”")


def show_report(answer: Answer, wanted: bool) -> None:
    """What a user should know of an answer is told in any case."""
    if wanted:
        print(told(answer.report), file=sys.stderr)
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1].rstrip()}…"
