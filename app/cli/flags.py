"""Flags that commands share. Each stands for a setting and wins over the environment and `.env`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from app.settings import Settings

Engine = Annotated[str | None, typer.Option(help="What runs the language model: torch or vllm.")]
Model = Annotated[str | None, typer.Option(help="bundled:smollm2, a folder, or an id on the model hub.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
CacheDir = Annotated[Path | None, typer.Option(help="Where converted models and KV caches are kept.")]


def configure(**flags: Any) -> Settings:
    """The settings with the flags that were given, and logging as they say."""
    from app.logs import configure_logging
    from app.settings import load_settings, redirection

    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    if told := redirection(**flags):
        logging.getLogger(__name__).info(told)
    return settings
