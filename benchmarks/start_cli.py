"""`ragcache bench start`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Model, configure


def start(
    commands: Annotated[str, typer.Option(help="With commas between them.")] = "ls,show,cache stats,ask",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with every command once.")] = 5,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/start.json"),
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """From Enter to the end of a command, or to the first word of an answer."""
    settings = configure(model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from benchmarks.start import StartBenchOptions, parse_commands, run

    options = StartBenchOptions(parse_commands(commands), rounds)
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder), options, json)
