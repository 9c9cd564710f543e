"""Requests of a trace on machines that share a bucket too small for all passages: what is found where, by each order.

python -m tests.ragcache.store.remote.shared_trace --trace TRACE [--machines 4] [--disk 0.05] [--bucket 0.25]
Each request is one machine's, in turn. Stores and plans are the real ones, the bucket is a folder, and the KV is of a
few bytes for each token. All tell what they used every eight requests, ten minutes of this trace.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.trace.requests import read_trace
from benchmarks.trace.stored import StoredPassages
from ragcache.store.remote.store import SharedStore

TOLD_EVERY = 8


def shares(trace_file: Path, machines: int, disk: float, bucket: float, order: str, folder: Path) -> dict[str, float]:
    """Of the readings, that each tier had."""
    trace = read_trace(trace_file)
    room, url = int(trace.tokens.sum()), f"file://{folder}/bucket"
    stores = [
        StoredPassages(trace, int(disk * room), order, 0.0, folder / f"{one}", url, int(bucket * room))
        for one in range(machines)
    ]
    found = Counter[str]()
    for number, request in enumerate(trace.requests):
        store = stores[number % machines]
        found.update(store.find(request))
        shared = [one.store for one in stores]
        assert all(isinstance(one, SharedStore) for one in shared)
        for one in shared:
            assert isinstance(one, SharedStore) and one.settle(60)
            if number % TOLD_EVERY == TOLD_EVERY - 1:
                one._courier._uses.tell(at_once=True)
    for store in stores:
        store.close()
    return {tier: count / found.total() for tier, count in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--disk", type=float, default=0.05, help="of each machine, as a share of all passages")
    parser.add_argument("--bucket", type=float, default=0.25, help="of all machines")
    parser.add_argument("--orders", default="fifo,lru,lfu,value", help="of the bucket; disks go by value")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows = []
    for name in given.orders.split(","):
        order = f"ram=lru,disk=value,bucket={name}"
        with tempfile.TemporaryDirectory() as folder:
            told = shares(given.trace, given.machines, given.disk, given.bucket, order, Path(folder))
        rows.append(
            {"order": name, "disk": told.get("disk", 0), "bucket": told.get("bucket", 0), "none": told.get("", 0)}
        )
        print(
            " ".join(f"{value:.3f}" if isinstance(value, float) else f"{value:6}" for value in rows[-1].values()),
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
