"""Faults of a disk at random blocks, while the front of a prompt is computed: each answer is as without the cache.

    python -m tests.fuzz.cold_loads --seed 1 --count 1000 [--model FOLDER [--tokens N]] [--layers]

Whatever else comes (another answer, an exception, a thread or a descriptor that stays, rows computed twice) is a find.
With a model of its own it tells how much longer a prompt takes than computing all of it.
"""

from __future__ import annotations

import argparse
import errno
import logging
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import StoreError
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.rates import Rates
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment
from tests.loaders import known_rates
from tests.tiny import assert_close, make_chunks, make_question, make_system, make_tiny

LIMIT_S = 20.0
GIVEN_UP_S = 0.2  # of a read by layers, which nobody computes meanwhile
BLOCK = 8  # tokens of what is read at a time
SOON = (0.001, 0.005, 0.02)  # seconds of a read that is late
MOST_FAULTS = 5
THREADS = "fuzz-cold"
KINDS = ("error", "late", "stall", "nothing more", "short", "corrupt", "vanished")


@dataclass
class Disk:
    """What happens before each read of one prompt. A loader's pace."""

    faults: dict[int, Callable[[], None]]
    reads: int = 0
    gone: bool = False  # nothing comes any more
    end: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            fault, self.reads = self.faults.get(self.reads), self.reads + 1
        if fault is not None:
            fault()
        if self.gone:
            self.end.wait(LIMIT_S)

    def stop(self) -> None:
        self.gone = True


@dataclass
class Campaign:
    """Prompts over one document whose KV is exact: whatever was loaded or computed, a plain prefill holds the same."""

    engine: TorchEngine
    root: Path
    chunks: Sequence[Chunk]
    random: Random
    tolerance: float = 1e-4
    layers: bool = False  # they come while those below are computed over
    kinds: Counter[str] = field(default_factory=Counter)
    fronts: Counter[int] = field(default_factory=Counter)
    within: int = 0  # prompts of which computing and loading met within a chunk
    delays: list[float] = field(default_factory=list)  # over computing all

    def __post_init__(self) -> None:
        self.segments: list[Segment] = [make_system(), *self.chunks, make_question()]
        with patch("ragcache.store.entry.block_for", lambda tokens: BLOCK):
            self.store: KVStore = open_store(self.root, ram_bytes=0, codec="raw")
            cache = self._cache(SequentialLoader())
            self.variants = [cache.system_variant(make_system()), *cache.ingest(make_system(), self.chunks)]
        self.files = {next(self.root.rglob(f"{one.key.digest}*")): one for one in self.variants}
        self.contents = {path: path.read_bytes() for path in self.files}
        self.plain = self._cache(SequentialLoader())
        self.expected = prefill_prompt(self.plain, self.segments, "full").logits.clone()
        self.rows = 0

    def _cache(self, loader: Loader, rates: Rates | None = None) -> ChunkCache:
        chunks = len(self.chunks)
        return ChunkCache(self.engine, self.store, context_chunks=chunks, keep_missed=False, loader=loader, rates=rates)

    def _cold(self, threads: DiskThreads, disk: Disk) -> ChunkCache:
        if not self.layers:
            return self._cache(CakeLoader(threads, pace=disk))
        return self._cache(LayerwiseLoader(threads, pace=disk), known_rates(1.0, 1e-9))

    def run(self, count: int) -> None:
        descriptors = _descriptors()
        with self._counted(), patch.multiple("ragcache.slices", BLOCK=BLOCK, FINE=BLOCK):
            for _ in range(count):
                self._one()
        assert not (left := _descriptors() - descriptors), f"files have stayed open: {left}"
        self.store.check_integrity()

    def _one(self) -> None:
        disk, threads = Disk({}), DiskThreads(READERS, THREADS, GIVEN_UP_S if self.layers else LIMIT_S)
        for _ in range(self.random.randint(1, MOST_FAULTS)):
            kind = self.random.choice(KINDS)
            disk.faults[self.random.randrange(4 * len(self.chunks))] = self._fault(kind, disk)
            self.kinds[kind] += 1
        self.rows, started = 0, perf_counter()
        try:
            made = prefill_prompt(self._cold(threads, disk), self.segments, "naive")
            took = perf_counter() - started
        finally:
            disk.end.set()
            threads.close()
        assert not [one for one in threading.enumerate() if one.name == THREADS], "a thread has stayed"
        assert_close(made.logits, self.expected, self.tolerance)
        began_anew = self.layers and bool(made.report.incidents)
        assert self.rows <= len(made.plan.ids) * (1 + began_anew), "no row is computed twice"
        self.fronts[sum(chunk.tier == COMPUTED for chunk in made.report.chunks)] += 1
        self.within += any(0 < chunk.computed < chunk.tokens for chunk in made.report.chunks)
        started = perf_counter()
        prefill_prompt(self.plain, self.segments, "full")
        self.delays.append(took / (perf_counter() - started))
        self._mend()

    def _mend(self) -> None:
        for path, variant in self.files.items():
            known = {info.key for info in self.store.variants(variant.key.family)}
            if variant.key not in known or not path.exists() or path.read_bytes() != self.contents[path]:
                with patch("ragcache.store.entry.block_for", lambda tokens: BLOCK):
                    self.store.put(variant)
                self.contents[path] = path.read_bytes()

    def _fault(self, kind: str, disk: Disk) -> Callable[[], None]:
        path, content = self.random.choice(list(self.contents.items()))
        place, wait = self.random.randrange(len(content)), self.random.choice(SOON)
        error = self.random.choice([OSError(errno.EIO, "read"), StoreError("the disk failed"), MemoryError()])

        def fail() -> None:
            raise error

        def corrupt() -> None:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])

        faults: dict[str, Callable[[], Any]] = {
            "error": fail,
            "late": lambda: disk.end.wait(wait),
            "stall": lambda: disk.end.wait(LIMIT_S),
            "nothing more": disk.stop,
            "short": lambda: path.write_bytes(content[:place]),
            "corrupt": corrupt,
            "vanished": lambda: path.unlink(missing_ok=True),
        }
        return faults[kind]

    @contextmanager
    def _counted(self) -> Iterator[None]:
        forward, layers = self.engine.forward, self.engine.spec.layers

        def counted(hidden: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
            of = named.get("layers")
            self.rows += len(hidden) if of is None or len(of) == layers else 0
            return forward(hidden, *given, **named)

        with patch.object(self.engine, "forward", counted):
            yield

    def told(self) -> str:
        delays = sorted(self.delays)
        late = delays[int(0.95 * len(delays))]
        faults = f"{self.kinds.total()} faults {dict(self.kinds)}; computed chunks {dict(sorted(self.fronts.items()))}"
        return f"{faults}; over computing all: median {median(delays):.2f}, 95 % {late:.2f}, most {delays[-1]:.2f}"


def _descriptors() -> Counter[str]:
    """Of files, by their names."""
    opened, found = Path("/proc/self/fd"), Counter[str]()
    for path in opened.iterdir() if opened.is_dir() else ():
        with suppress(OSError):  # the folder's own
            found[str(path.readlink())] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--model", type=Path, help="folder of a model; a tiny random one")
    parser.add_argument("--tokens", type=int, default=100, help="of each chunk, for a model of its own")
    parser.add_argument("--layers", action="store_true", help="layers come while those below are computed over")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # each fault is told there
    engine, lengths, tolerance = make_tiny().engine, (20, 31, 18, 45, 22, 14, 37, 19), 1e-4
    if given.model is not None:
        engine = TorchEngine.from_folder(given.model, torch.bfloat16, torch.device("cpu"))
        lengths, tolerance = (given.tokens,) * 8, 0.1
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(engine, Path(folder), make_chunks(*lengths), Random(given.seed), tolerance, given.layers)
        campaign.run(given.count)
    print(f"cold_loads: seed {given.seed}, {given.count} prompts, {campaign.told()}")


if __name__ == "__main__":
    main()
