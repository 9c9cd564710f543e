"""What the index of a large cache folder costs: `python -m benchmarks.store_index [ENTRIES]`.

Small files stand for large ones: what is timed reads headers and rows, no KV.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch

from ragcache.address import untold_lineage
from ragcache.host import private_folder
from ragcache.store import DiskTier, RamTier
from ragcache.store.codec import open_codec
from ragcache.store.entry import pack
from ragcache.store.layout import FolderLayout
from ragcache.types import Profile, Variant, VariantKey, ids_hash

VARIANTS, CHUNKS = 5, 10  # of a chunk; of a prompt
ROUNDS = 200


def variant(chunk: int, context: int) -> Variant:
    ids = (chunk, 1, 2, 3)
    kv, rows = torch.zeros(1, 1, len(ids), 8), np.zeros(len(ids), np.float32)
    key = VariantKey("f" * 64, "s" * 64, (f"{context:064}",), ids_hash(ids))
    profile = Profile(np.zeros((2, len(ids)), np.float32), rows, rows, (9, 9))
    return Variant(key, ids, kv, kv.clone(), profile, untold_lineage(key, len(ids)))


def fill(root: Path, entries: int) -> None:
    """As a folder from before the index."""
    layout, codec = FolderLayout(root), open_codec("raw")
    for number in range(entries):
        made = variant(number // VARIANTS, number % VARIANTS)
        path = layout.entry(made.key)
        private_folder(path.parent)
        path.write_bytes(b"".join(pack(made, codec)[1]))


def timed(work: Callable[[], object], rounds: int = 1) -> float:
    """Microseconds, the median."""
    seconds = []
    for _ in range(rounds):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return median(seconds) * 1e6


def prompts(entries: int) -> Callable[[], list[VariantKey]]:
    """Chunks of one prompt after the other, among a thousand."""
    place = count()
    keys = [variant(chunk, 0).key for chunk in range(min(entries // VARIANTS, 1000))]
    return lambda: [keys[next(place) * 7919 % len(keys)] for _ in range(CHUNKS)]


def of_the_disk(root: Path, entries: int) -> dict[str, float]:
    told = {"takeover_s": timed(lambda: DiskTier(root, None, "raw")) / 1e6}
    told["open_s"] = timed(lambda: DiskTier(root, 1 << 40, "raw"), 5) / 1e6
    store, asked = DiskTier(root, None, "raw"), prompts(entries)

    def look_up() -> None:
        for key in asked():
            assert len(store.variants(key.family)) == VARIANTS

    def look_elsewhere(chunk: str | None = None) -> None:
        for key in asked():
            wanted = replace(key, system="t" * 64, chunk=chunk or key.chunk)
            assert len(store.elsewhere(wanted)) == (0 if chunk else VARIANTS)

    told["cold_look_up_us"] = timed(look_up, ROUNDS // 2)
    told["hot_look_up_us"] = timed(look_up, ROUNDS)
    told["hot_look_up_elsewhere_us"] = timed(look_elsewhere, ROUNDS)
    told["vain_look_up_elsewhere_us"] = timed(lambda: look_elsewhere("0" * 64), ROUNDS)
    key = variant(3, 3).key
    told["hit_us"] = timed(lambda: store.get(key), ROUNDS)
    told["use_us"] = timed(lambda: store.use(key), ROUNDS)
    new = count(entries)
    told["put_us"] = timed(lambda: store.put(variant(next(new), 0)), ROUNDS)
    full = DiskTier(root, store.stats()[0].nbytes, "raw")
    told["put_into_a_full_one_us"] = timed(lambda: full.put(variant(next(new), 0)), ROUNDS)
    return told


def of_the_ram(entries: int) -> dict[str, float]:
    ram = RamTier(None)
    for number in range(entries):
        ram.put(variant(number // VARIANTS, number % VARIANTS))
    ram._budget = ram.stats()[0].nbytes
    more = iter([variant(entries + number, 0) for number in range(ROUNDS)])
    told = {"insert_into_full_ram_us": timed(lambda: ram.put(next(more)), ROUNDS)}
    assert ram.stats()[0].evictions == ROUNDS
    return told


def main(entries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        fill(Path(folder), entries)
        print(f"{entries:,} files in {perf_counter() - began:.0f} s", file=sys.stderr)
        told = of_the_disk(Path(folder), entries) | of_the_ram(entries)
    print(json.dumps({"entries": entries} | {name: round(value, 3) for name, value in told.items()}, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
