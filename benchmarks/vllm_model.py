"""vLLM in this process, for benchmarks."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.compose import VllmModel
from app.devices import resolve_device, resolve_dtype
from app.models import resolve_model
from app.prompt import PromptTemplate, load_tokenizer
from app.settings import Settings
from app.vllm import check_vllm
from benchmarks.caches import CONTEXTS, check_context
from ragcache.errors import ModelError
from ragcache.store import open_store
from ragcache.store.base import KVStore

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.cache import VllmCache
    from ragcache.engine.vllm.engine import VllmEngine


@contextmanager
def open_vllm(settings: Settings, **options: Any) -> Iterator[VllmModel]:
    """As vLLM starts by default, compiled, but for `options`, its engine arguments. One at a time; it links from an
    empty store until `use_store` names another.
    """
    check_vllm(settings)
    from ragcache.engine.vllm.engine import VllmEngine

    folder, device = resolve_model(settings.model, settings.cache_dir), resolve_device(settings)
    template = PromptTemplate(load_tokenizer(folder), settings.system_prompt)
    given = {"kv_cache_memory_bytes": settings.vllm_kv_bytes or None, **options}
    linking = {"codec": settings.codec}  # it tells which KV is exact to the last bit, so that others may share it
    engine = VllmEngine(folder, resolve_dtype(settings, device), empty_store(settings), linking=linking, **given)
    model = VllmModel(settings, engine, template)
    try:
        yield model
    finally:
        model.close()


def empty_store(settings: Settings) -> KVStore:
    """In RAM."""
    return open_store(None, None, None, settings.codec)


def vllm_cache(engine: VllmEngine, store: KVStore, context: str) -> VllmCache:
    """The linker is given with each prompt."""
    from ragcache.engine.vllm.cache import VllmCache

    behind = CONTEXTS[check_context(context)]
    return VllmCache(engine, store, "naive", context_chunks=behind, keep_missed=False)


def outputs(engine: VllmEngine, ids: Sequence[int], params: Any) -> Iterator[Any]:
    """vLLM's outputs of one request as they come, the last one with its report."""
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.submit(ids, params, received.put)
    while True:
        output = received.get()
        if output is None:
            raise ModelError("the vLLM engine broke during an answer: see the log for why")
        yield output
        if output.finished:
            return
