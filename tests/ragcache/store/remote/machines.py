"""Run by test_machines.py: one machine of several that share a bucket, as a process of its own.

machines.py SCENE FOLDER URL: prints what it did, one line of JSON. The KV is that of a tiny engine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from ragcache.cache import ChunkCache
from ragcache.store.opening import open_store
from ragcache.store.remote import store as module
from ragcache.store.remote.store import SharedStore
from ragcache.types import Chunk, System, Text
from tests.tiny import make_tiny

SYSTEM = System((1, 2, 3, 4))
CHUNKS = [Chunk(tuple(range(start, start + 40))) for start in (5, 50, 100)]
QUESTION = Text((7, 8, 9))
SETTLED_S = 120.0


def main(scene: str, folder: Path, url: str) -> None:
    module.LOOK_S = 20.0  # the machine that runs this may be busy
    store = open_store(folder, ram_bytes=1 << 28, codec="raw", remote=url)
    assert isinstance(store, SharedStore)
    cache = ChunkCache(make_tiny().engine, store, "naive", context_chunks=2, keep_missed=False)
    told: object = None
    match scene:
        case "ingest":
            told = sorted(variant.key.digest for variant in cache.ingest(SYSTEM, CHUNKS))
        case "answer":
            stream = cache.generate([SYSTEM, *CHUNKS, QUESTION], max_tokens=6)
            told = {"tokens": list(stream), "chunks": [asdict(chunk) for chunk in stream.report.chunks]}
            told["system"] = stream.report.system_tier
        case "delete":
            for chunk in CHUNKS:
                store.drop_chunk(cache.engine.spec.fingerprint, SYSTEM.hash, chunk.hash, elsewhere=True)
            store.drop_seeing({chunk.hash for chunk in CHUNKS})
    assert store.settle(SETTLED_S), "it waits still"
    store.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
