"""Flags that commands share. Each stands for a setting and wins over the environment and `.env`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.client.address import NamedServer, find_server
from app.logs import formatter
from ragcache.errors import ConfigError

if TYPE_CHECKING:
    from app.settings import Settings

OURS = ("app", "ragcache", "retriever", "splitter", "ui", "benchmarks")  # loggers
Engine = Annotated[str | None, typer.Option(help="What runs the language model: torch or vllm.")]
Model = Annotated[str | None, typer.Option(help="bundled:smollm2, a folder, or an id on the model hub.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
CacheDir = Annotated[Path | None, typer.Option(help="Where converted models and KV caches are kept.")]
DataDir = Annotated[Path | None, typer.Option(help="Where the catalog and the indexes are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str | None, typer.Option("--collection", "-c", help="The collection; RAGCACHE_COLLECTION by default.")]
Splitter = Annotated[str | None, typer.Option(help="auto, fixed, semantic, structure or a NodeParser: NAME:KEY=VALUE.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="How many chunks the question retrieves.")]
TopTokens = Annotated[
    int | None, typer.Option("--top-tokens", min=0, help="How many tokens its chunks may take together; 0: any.")
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer, in tokens.")]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, max=2, help="0: the likeliest tokens; the higher, the more varied. As the model's makers say."),
]
TopP = Annotated[
    float | None, typer.Option("--top-p", max=1, help="Above temperature 0: only tokens of the upper share.")
]
Kv = Annotated[
    str | None,
    typer.Option(
        "--kv",
        metavar="MODE",
        help="When KV is computed: auto (now, as far as it fits), eager (now), on-use (by answers) or off.",
    ),
]
Host = Annotated[str | None, typer.Option("--host", help="The address it listens at.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The port it listens at; 0: a free one.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Above temperature 0: the same seed gives the same answer.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="Have a server do it; RAGCACHE_SERVER by default, and '' is this machine."
    ),
]
Linker = Annotated[str | None, typer.Option(help="Which tokens of cached chunks are computed again.")]
FLAGS: Mapping[str, Any] = (
    {"collection": Name, "top_k": TopK, "top_tokens": TopTokens, "max_tokens": MaxTokens}
    | {"temperature": Temperature, "top_p": TopP, "seed": Seed}
    | {"linker": Linker, "splitter": Splitter}
    | {"engine": Engine, "model": Model, "device": Device, "dtype": Dtype}
    | {"kv": Kv}
    | {"cache_dir": CacheDir, "data_dir": DataDir}
    | {"serve_host": Host, "serve_port": Port, "ui_host": Host, "ui_port": Port, "server": Server}
)
Command = Callable[..., None]


def configured(*order: str | EllipsisType, served: Command | None = None) -> Callable[[Command], Command]:
    """A command is given the settings, by flags that it need not list.

    `order`: as the help shows them. Its own parameters stand where they are named, and all others at `...`. One that is
    a setting too is given to both. Where a server is named, `served` is called in its place, with the server and all
    flags; no settings are read.
    """

    def decorate(command: Command) -> Command:
        # The settings are not imported yet, and are not for the command line.
        _, *parameters = inspect.signature(command, eval_str=True, locals={"Settings": None}).parameters.values()
        own = {one.name: one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters}
        flags = [name for name in order if isinstance(name, str) and name in FLAGS]
        made = {name: Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=FLAGS[name]) for name in flags}
        rest = [one for name, one in own.items() if name not in order]
        shown = [one for name in order for one in ([(made | own)[name]] if isinstance(name, str) else rest)]

        @wraps(command)
        def run(**given: Any) -> None:
            server = None if served is None else find_server(given.pop("server"))
            if served is not None and server is not None:
                served(server, **given)
                return
            settings = configure(**{name: given[name] for name in flags if name in given})
            command(settings, **{name: given[name] for name in own})

        run.__annotations__ = {one.name: one.annotation for one in shown}
        vars(run)["__signature__"] = Signature(shown)
        return run

    return decorate


def of_server(server: NamedServer, flags: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Those that were given. Raises ConfigError where one means nothing to a server."""
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != []}
    for name in given:
        if name not in known:
            raise ConfigError(
                f"--{name.replace('_', '-')} means nothing to the server {server.url}, which has its own settings: "
                "leave it out, or have this machine do it by --server ''"
            )
    return given


def configure(**flags: Any) -> Settings:
    """The settings with the flags that were given, and logging as they say."""
    from app.settings import load_settings, redirection

    settings = load_settings(**flags)
    _configure_logging(settings)
    if told := redirection(**flags):
        logging.getLogger(__name__).info(told)
    return settings


def _configure_logging(settings: Settings) -> None:
    """Our loggers at the level of the settings; libraries speak up from warnings on."""
    level, handler = settings.log_level, logging.StreamHandler()
    handler.setFormatter(formatter(settings.log_format))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    # At every start vLLM warns of a dozen things that are as they should be.
    logging.getLogger("vllm").setLevel(logging.DEBUG if level == "debug" else logging.ERROR)
