"""The tests in this folder need vLLM, which is not everywhere: their files are named vllm_*.py, and
`pytest -W default -o python_files='vllm_*.py' tests/equivalence/vllm` runs them where it is. vLLM and what it imports
warn on their own, so warnings are no errors here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.store import open_store
from ragcache.store.base import KVStore
from tests.tiny import Tiny, make_tiny

TOKENS = 512
# A machine that is busy with others may take its time; what is late is tested where something is.
LINKING = {"link_when": "always", "load_timeout_s": 600.0}
CONTEXT = 2  # chunks, so that a short document rolls


def pytest_report_header() -> str:
    """What kernels compute by, which differ from machine to machine in the order of their sums."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    known = " ".join(sorted(flags & {"avx2", "avx512f", "avx512_bf16", "amx_tile"}))
    load, threads = os.getloadavg()[0], torch.get_num_threads()
    return (
        f"cpu: {name} ({known}; torch: {torch.backends.cpu.get_cpu_capability()}), {threads} threads, load {load:.1f}"
    )


@pytest.fixture(scope="session", autouse=True)
def _vllm_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        yield


@dataclass(frozen=True)
class Pair:
    """One small model in both engines, over a store each; the chunks in both were captured by torch."""

    tiny: Tiny
    folder: Path
    torch: ChunkCache
    vllm: Any  # ChunkCache

    @property
    def engine(self) -> Any:
        return self.vllm.engine


OpenPair = Callable[..., AbstractContextManager[Pair]]


@pytest.fixture(scope="module")
def open_pair(tmp_path_factory: pytest.TempPathFactory) -> OpenPair:
    """vLLM runs once per process, so a pair is closed before the next is opened."""

    @contextmanager
    def opened(
        family: str = "llama", store: KVStore | None = None, linking: Any = None, **options: Any
    ) -> Iterator[Pair]:
        from ragcache.cache import ChunkCache
        from ragcache.engine.vllm.engine import VllmEngine

        # vLLM's CPU attention has no smaller heads.
        tiny = make_tiny(family, head_dim=32, hidden_size=128, max_position_embeddings=TOKENS)
        folder = tmp_path_factory.mktemp(family)
        tiny.model.save_pretrained(folder)
        plain = TorchEngine.from_folder(folder, torch.float32, torch.device("cpu"))
        shared = store or open_store(codec="raw")
        settings = {"max_model_len": TOKENS, "enforce_eager": True, "kv_cache_memory_bytes": 64_000_000, **options}
        engine = VllmEngine(folder, torch.float32, shared, linking={**LINKING, **(linking or {})}, **settings)
        cache = ChunkCache(plain, shared, "naive", context_chunks=CONTEXT, keep_missed=False)
        try:
            yield Pair(
                tiny, folder, cache, ChunkCache(engine, shared, "naive", context_chunks=CONTEXT, keep_missed=False)
            )
        finally:
            engine.close()

    return opened
