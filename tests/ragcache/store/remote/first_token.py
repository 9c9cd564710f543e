"""The first token of a prompt whose KV is in a bucket 50 ms away, against the disk and against computing it.

python -m tests.ragcache.store.remote.first_token [--tokens 1024] [--rounds 9] [--latency-ms 50] [--json OUT]
The machine's own models and settings; S3 is moto's server behind the tests' proxy, on this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from app.models.loading import TorchModel, load_torch_model
from app.settings import load_settings
from benchmarks.corpus import prompt_chunks, read_texts, split_documents
from ragcache.cache import ChunkCache
from ragcache.store import KVStore, open_store
from ragcache.store.remote.store import SharedStore
from ragcache.types import Segment
from tests.buckets import new_bucket, proxied, s3_server

QUESTION = "What do the excerpts say of the harbour?"


def first_token(cache: ChunkCache, segments: Sequence[Segment], linker: str | None = None) -> tuple[float, list[str]]:
    """Seconds, and where the chunks came from."""
    stream = cache.generate(segments, max_tokens=1, linker=linker)
    list(stream)
    return stream.report.ttft_s, [chunk.tier for chunk in stream.report.chunks]


def measured(
    parts: TorchModel, segments: Sequence[Segment], folder: Path, url: str, rounds: int
) -> list[dict[str, Any]]:
    def opened(name: str, remote: str = "") -> KVStore:
        return open_store(folder / name, ram_bytes=0, codec=parts.settings.codec, remote=remote)

    def cache_over(store: KVStore, *, loads_beside: bool) -> ChunkCache:
        loader = parts.loader if loads_beside else None
        return ChunkCache(parts.engine, store, "auto", keep_missed=False, loader=loader)

    filled = opened("filled", url)
    assert isinstance(filled, SharedStore)
    cache = cache_over(filled, loads_beside=False)
    list(cache.ingest(segments[0], segments[1:-1]))
    assert filled.settle(300)
    nbytes = filled.kept.nbytes
    rows: dict[str, list[float]] = {}
    tiers: dict[str, set[str]] = {}
    for number in range(-1, rounds):  # the first one warms up
        modes: dict[str, tuple[ChunkCache, str | None]] = {
            "computed": (cache, "full"),
            "disk": (cache, None),
            "bucket": (cache_over(opened(f"plain-{number}", url), loads_beside=False), None),
            "bucket, Cake": (cache_over(opened(f"cake-{number}", url), loads_beside=True), None),
            "nothing is kept": (cache_over(opened(f"bare-{number}"), loads_beside=False), None),
            "bucket lacks it": (cache_over(opened(f"empty-{number}", f"{url}-empty"), loads_beside=False), None),
        }
        for mode, (over, linker) in modes.items():
            seconds, found = first_token(over, segments, linker)
            if number >= 0:
                rows.setdefault(mode, []).append(seconds)
                tiers.setdefault(mode, set()).update(found)
    return [
        {"mode": mode, "seconds": median(all_of), "worst": max(all_of), "tiers": sorted(tiers[mode]), "nbytes": nbytes}
        for mode, all_of in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts = load_torch_model(load_settings())
    documents = split_documents(parts.template, read_texts(None), 240)
    chunks = prompt_chunks(parts.template, documents, options.tokens, QUESTION, 0)
    segments = [parts.template.system(), *chunks, parts.template.question(QUESTION)]
    latency = options.latency_ms / 1000
    with tempfile.TemporaryDirectory() as folder, s3_server() as server, proxied(server, latency) as network:
        bucket = new_bucket(server, network.port)
        os.environ.update(bucket.environment)
        rows = measured(parts, segments, Path(folder), bucket.url, options.rounds)
    for row in rows:
        print(f"{row['mode']:16} {row['seconds'] * 1000:7.0f} ms  worst {row['worst'] * 1000:7.0f}  {row['tiers']}")
    if options.json:
        told = {"tokens": sum(map(len, segments)), "latency_ms": options.latency_ms}
        options.json.write_text(json.dumps(told | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
