"""Each case in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from app.settings import Settings
from benchmarks.folder import bench_folder
from benchmarks.memory import MemoryBenchOptions
from benchmarks.output import Row, publish
from ragcache.errors import RagcacheError

# In this order: what is linked was ingested. `load` is the floor of both: the model and nothing else.
CASES = ("load", "ingest", "link")


def main(settings: Settings, options: MemoryBenchOptions, out: Path | None) -> list[Row]:
    rows: list[Row] = []
    with bench_folder(settings.cache_dir) as folder:
        for case in tqdm(CASES, desc="memory", unit="case"):
            rows.append(_measure(case, settings, folder, options))
    publish(settings.model_dump(mode="json", exclude={"cache_dir"}) | options.settings(), rows, out)
    return rows


def _measure(case: str, settings: Settings, folder: Path, options: MemoryBenchOptions) -> Row:
    task = {"case": case, "settings": settings.model_dump(mode="json"), "folder": str(folder), **options.settings()}
    command = [sys.executable, "-m", "benchmarks.memory.case"]
    # Its progress goes to our stderr as it comes.
    ran = subprocess.run(command, input=json.dumps(task), stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise RagcacheError(f"the process that measures {case!r} ended with {ran.returncode}; its last words are above")
    row: Row = json.loads(ran.stdout.splitlines()[-1])
    return row
