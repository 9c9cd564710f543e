"""`ragcache ask`. Little is imported before it is known who answers: a server is asked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.answers import show_answer
from app.cli.flags import Json, Temperature, configured, of_server
from app.cli.output import print_json
from app.client.address import NamedServer
from app.client.answers import ask as ask_server
from app.client.connection import ServerConnection
from ragcache.errors import ConfigError
from ragcache.report import FULL

if TYPE_CHECKING:
    from app.settings import Settings

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
    "server",
)
OF_MODELS = ("engine", "model", "device", "dtype", "cache_dir", "data_dir")
# Flags that a server is sent, with its name for each.
SENT = {"max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "seed": "seed", "linker": "linker"}
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compute the whole prompt, as without RAGCache.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="The likeliest tokens, always the same: temperature 0.")]
ShowReport = Annotated[
    bool, typer.Option("--show-report/--no-show-report", help="Tell on stderr what was reused and how long it took.")
]


def asked_of_server(
    server: NamedServer,
    question: str,
    no_cache: bool,
    greedy: bool,
    temperature: float | None,
    as_json: bool,
    show_report: bool,
    **flags: Any,
) -> None:
    collection, choices = choices_of(server, flags, no_cache, greedy, temperature, top_k="top_k_chunks")
    with ask_server(ServerConnection(server), collection, question, choices) as stream:
        if as_json:
            print_json(stream.answer.to_dict())
        else:
            show_answer(stream, show_report)


@configured(*OF_ANSWERS, *OF_MODELS, served=asked_of_server)
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
    from app.answering.pipeline import RagPipeline

    with (
        RagPipeline(answering(settings, no_cache, greedy, temperature)) as pipeline,
        pipeline.stream(question) as stream,
    ):
        if as_json:
            print_json(stream.answer.to_dict())
        else:
            show_answer(stream, show_report)


def answering(settings: Settings, no_cache: bool, greedy: bool, temperature: float | None) -> Settings:
    """`temperature`: of the flag."""
    return settings.model_copy(update=_chosen(no_cache, greedy, temperature))


def choices_of(
    server: NamedServer, flags: Mapping[str, Any], no_cache: bool, greedy: bool, temperature: float | None, top_k: str
) -> tuple[str, dict[str, Any]]:
    """The collection, and how its answer is to be made, as the server takes it. `top_k`: its name for that."""
    given = of_server(server, {**flags, "temperature": temperature}, "collection", "top_k", *SENT)
    names = SENT | {"top_k": top_k}
    choices = {names[name]: value for name, value in given.items() if name in names}
    return given.get("collection", server.collection), choices | _chosen(no_cache, greedy, temperature)


def _chosen(no_cache: bool, greedy: bool, temperature: float | None) -> dict[str, Any]:
    """Raises ConfigError where two flags contradict each other."""
    if greedy and temperature:
        raise ConfigError(f"--greedy is temperature 0, and --temperature says {temperature}: give one of them")
    return ({"linker": FULL} if no_cache else {}) | ({"temperature": 0.0} if greedy else {})
