"""Each command in a process of its own, over a collection of the samples."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from app import RagPipeline
from app.samples import read_samples
from app.settings import Settings
from benchmarks.output import Row, publish
from benchmarks.start import COMMANDS, StartBenchOptions
from ragcache.errors import ConfigError

# Writes to stderr how many modules were imported; the answer's first word is the first byte on stdout.
_START = """
import sys
sys.argv[0] = "ragcache"
from app.cli import main
try:
    main()
finally:
    print(len(sys.modules), file=sys.stderr)
"""


def main(settings: Settings, options: StartBenchOptions, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder), options, out)


def run(settings: Settings, folder: Path, options: StartBenchOptions, out: Path) -> None:
    """With a collection of the samples in `folder`, and files that were read before."""
    settings = settings.model_copy(update={"data_dir": folder / "data"})
    (folder / "samples").mkdir(parents=True)
    for name, text in read_samples().items():
        (folder / "samples" / name).write_text(text, encoding="utf-8")
    with RagPipeline(settings) as pipeline:
        pipeline.ingest(folder / "samples")
    found: dict[str, list[tuple[float, int]]] = {command: [] for command in options.commands}
    for number in range(options.rounds + 1):
        for command in options.commands:
            measured = measure(COMMANDS[command], settings)
            if number:  # the first round warms up: pages, records and byte code
                found[command].append(measured)
    rows: list[Row] = [
        {
            "command": command,
            "seconds": statistics.median(seconds for seconds, _ in several),
            "imports": max(imports for _, imports in several),
        }
        for command, several in found.items()
    ]
    publish(options.settings() | {"model": settings.model, "embedder": settings.embedder}, rows, out)


def measure(command: Sequence[str], settings: Settings) -> tuple[float, int]:
    """Seconds until the first byte of an answer or the end of any other command, and modules that were imported."""
    flags = ["--data-dir", str(settings.data_dir), "--cache-dir", str(settings.cache_dir)]
    if command[0] in ("ask", "cache"):
        flags += ["--model", settings.model, "--dtype", settings.dtype]
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-u", "-c", _START, *command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        first = os.read(child.stdout.fileno(), 1)
        seconds = time.perf_counter() - started
        _, told = child.communicate()
        if command[0] != "ask":
            seconds = time.perf_counter() - started
    if child.returncode or not first:
        raise ConfigError(f"`ragcache {' '.join(command)}` failed: {told.decode(errors='replace').strip()}")
    return seconds, int(told.split()[-1])
