"""`ragcache ask`, and how answers are shown: what was asked for on stdout, how it came about on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from app.answering import Answer, Citation, told
from app.answering.pipeline import RagPipeline
from app.answering.stream import AnswerStream
from app.cli.flags import Json, Temperature, configured
from app.cli.output import plain, print_json
from app.settings import Settings
from ragcache.errors import ConfigError

# In the order of the help, of `ask` and of `chat`.
OF_ANSWERS = (
    "collection",
    "top_k",
    "top_tokens",
    "linker",
    "no_cache",
    "max_tokens",
    "temperature",
    "greedy",
    "top_p",
    "seed",
    ...,
)
OF_MODELS = ("engine", "model", "device", "dtype", "cache_dir", "data_dir")
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compute the whole prompt, as without RAGCache.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="The likeliest tokens, always the same: temperature 0.")]
ShowReport = Annotated[
    bool, typer.Option("--show-report/--no-show-report", help="Tell on stderr what was reused and how long it took.")
]
SHORT = 100  # characters of a quote


@configured(*OF_ANSWERS, *OF_MODELS)
def ask(
    settings: Settings,
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    no_cache: NoCache = False,
    greedy: Greedy = False,
    temperature: Temperature = None,
    as_json: Json = False,
    show_report: ShowReport = True,
) -> None:
    """Answer a question from the documents of a collection, with citations."""
    with (
        RagPipeline(answering(settings, no_cache, greedy, temperature)) as pipeline,
        pipeline.stream(question) as stream,
    ):
        if as_json:
            print_json(stream.answer.to_dict())
        else:
            show_answer(stream, show_report)


def answering(settings: Settings, no_cache: bool, greedy: bool, temperature: float | None) -> Settings:
    """`temperature`: of the flag. Raises ConfigError where two flags contradict each other."""
    if greedy and temperature:
        raise ConfigError(f"--greedy is temperature 0, and --temperature says {temperature}: give one of them")
    chosen = ({"linker": "full"} if no_cache else {}) | ({"temperature": 0.0} if greedy else {})
    return settings.model_copy(update=chosen)


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
