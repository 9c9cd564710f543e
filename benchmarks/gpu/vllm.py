"""vLLM in this process, over folders of random weights."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.folders import write_folder
from benchmarks.gpu.shapes import ModelShape
from ragcache.cache import ChunkCache
from ragcache.store import open_store
from ragcache.store.base import KVStore

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine

LINKING = {"link_when": "always", "load_timeout_s": 60.0}


@contextmanager
def model_folder(shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ragcache-gpu-") as folder:
        write_folder(Path(folder), shape, device, dtype, seed)
        yield Path(folder)


@contextmanager
def open_vllm(folder: Path, shape: ModelShape, dtype: torch.dtype, codec: str, **options: Any) -> Iterator[VllmEngine]:
    """`options`: vLLM's own. One at a time; ImportError where vLLM is not."""
    logging.getLogger("vllm").setLevel(logging.WARNING)
    from ragcache.engine.vllm.engine import VllmEngine

    settings = {"max_model_len": shape.context, "max_logprobs": -1, **options}
    engine = VllmEngine(folder, dtype, open_store(codec=codec), linking=LINKING, **settings)
    try:
        yield engine
    finally:
        engine.close()


def use(engine: VllmEngine, store: KVStore, context_chunks: int) -> ChunkCache:
    engine.use_store(store)
    return ChunkCache(engine, store, "naive", context_chunks=context_chunks, keep_missed=False)
