"""How a worker reads the KV of prompts, off vLLM's thread."""

from __future__ import annotations

from time import perf_counter
from typing import Literal

from ragcache.engine.vllm.cores import leave_cores
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.errands import Clock
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.threads import READERS, DiskThreads

LoaderName = Literal["cake", "layerwise"]


def file_loader(limit_s: float = 5.0, clock: Clock = perf_counter, name: LoaderName = "cake") -> Loader:
    """`limit_s`: of reading a piece. Where Cake's two ends meet, the scheduler's side decides, so that ranks agree."""
    threads = DiskThreads(READERS, "ragcache-read", limit_s, clock, leave_cores)
    if name == "layerwise":
        return LayerwiseLoader(threads, clock=clock)
    return CakeLoader(threads, claims=False)
