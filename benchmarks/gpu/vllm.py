"""vLLM in this process, over folders of random weights."""

from __future__ import annotations

import logging
import queue
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.folders import write_folder
from benchmarks.gpu.shapes import ModelShape
from ragcache.cache import ChunkCache
from ragcache.engine.vllm.requests import link_params
from ragcache.errors import ModelError
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment

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


def distributions(
    engine: VllmEngine, segments: Sequence[Segment], linker: str, max_tokens: int
) -> tuple[list[int], torch.Tensor]:
    """An answer's tokens, and the log-probabilities of each step [steps, vocabulary]; nothing of it was there."""
    engine.forget_prefixes()
    extra = {"kv_transfer_params": link_params(segments, linker)}
    params = engine.sampling(max_tokens, extra, logprobs=-1)
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.submit([token for segment in segments for token in segment.ids], params, received.put)
    ids: list[int] = []
    rows: list[torch.Tensor] = []
    while True:
        output = received.get()
        if output is None:
            raise ModelError("the vLLM engine broke during an answer: see the log for why")
        completion = output.outputs[0]
        ids += completion.token_ids
        rows += [_row(step, engine.spec.vocabulary) for step in completion.logprobs]
        if output.finished:
            return ids, torch.stack(rows)


def _row(step: Any, vocabulary: int) -> torch.Tensor:
    row = torch.full((vocabulary,), torch.nan)
    for token, told in step.items():
        row[token] = told.logprob
    return row
