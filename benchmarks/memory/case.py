"""One case of the memory benchmark: reads its task from stdin, writes its row to stdout."""

from __future__ import annotations

import json
import resource
import sys
from itertools import chain, cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm import tqdm

from app.models.loading import TorchModel, load_torch_model
from app.samples import read_samples
from app.settings import load_settings
from benchmarks.corpus import split_documents
from ragcache.store import open_store
from ragcache.types import Chunk

CHUNK_TOKENS = 200
SHORTEST = 20  # characters that a paragraph has at least, the headings included
MB = 1e6


def measure(task: dict[str, Any]) -> dict[str, Any]:
    parts = load_torch_model(load_settings(None, **task["settings"]))
    started = perf_counter()
    tokens, chunks = _run(task, parts)
    seconds = perf_counter() - started
    return {
        "case": task["case"], "tokens": tokens, "chunks": chunks, "peak_mb": peak_bytes() / MB, "seconds": seconds,
    }  # fmt: skip


def _run(task: dict[str, Any], parts: TorchModel) -> tuple[int, int]:
    """-> tokens and chunks that went through it."""
    if task["case"] == "load":
        return 0, 0
    settings = parts.settings
    ram = 0 if task["case"] == "ingest" else settings.ram_bytes
    # Within the disk budget of the settings, so old chunks may have gone when the document is through.
    store = open_store(
        Path(task["folder"]),
        ram_bytes=ram,
        disk_bytes=settings.disk_bytes,
        codec=settings.codec,
        order=settings.eviction,
    )
    cache = parts.cache(store)
    chunks, system = _document(parts, task["megabytes"]), parts.template.system()
    if task["case"] == "ingest":
        variants = tqdm(cache.ingest(system, chunks), total=len(chunks), desc="ingest", unit="chunk")
        return sum(len(variant) for variant in variants), len(chunks)
    last = chunks[-task["chunks"] :][::-1]
    segments = (system, *last, parts.template.question("What is this about?"))
    generation = cache.generate(segments, max_tokens=1)
    return generation.report.prompt_tokens, len(last)


def _document(parts: TorchModel, megabytes: float) -> list[Chunk]:
    """The samples over and over; a number in front of each paragraph keeps the chunks apart."""
    size = int(megabytes * MB)
    paragraphs = chain.from_iterable(text.split("\n\n") for text in cycle(read_samples().values()))
    numbered = (f"{number}. {paragraph}" for number, paragraph in enumerate(paragraphs))
    text = "\n\n".join(islice(numbered, 1 + size // SHORTEST))[:size]
    return split_documents(parts.template, [text], CHUNK_TOKENS)[0]


def peak_bytes() -> int:
    """Most memory that this process has held at once."""
    status = Path("/proc/self/status")
    if status.is_file():
        # ru_maxrss begins with what the parent held when it started us; this figure is of this program alone.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    print(json.dumps(measure(json.load(sys.stdin))))
