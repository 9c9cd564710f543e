"""Flags that commands share. Each stands for a setting and wins over the environment and `.env`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from app.settings import Settings, load_settings, redirection

OURS = ("app", "ragcache", "retriever", "splitter", "ui", "benchmarks")  # loggers
Engine = Annotated[str | None, typer.Option(help="What runs the language model: torch or vllm.")]
Model = Annotated[str | None, typer.Option(help="bundled:smollm2, a folder, or an id on the model hub.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
CacheDir = Annotated[Path | None, typer.Option(help="Where converted models and KV caches are kept.")]
DataDir = Annotated[Path | None, typer.Option(help="Where the catalog and the indexes are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str | None, typer.Option("--collection", "-c", help="The collection; RAGCACHE_COLLECTION by default.")]


def configure(**flags: Any) -> Settings:
    """The settings with the flags that were given, and logging as they say."""
    settings = load_settings(**flags)
    _configure_logging(settings.log_level)
    if told := redirection(**flags):
        logging.getLogger(__name__).info(told)
    return settings


def _configure_logging(level: str) -> None:
    """Our loggers at the level of the settings; libraries speak up from warnings on."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    # At every start vLLM warns of a dozen things that are as they should be.
    logging.getLogger("vllm").setLevel(logging.DEBUG if level == "debug" else logging.ERROR)
