"""vLLM in this process, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.models.chat_template import load_tokenizer
from app.models.folders import resolve_model
from app.models.loading import VllmModel
from app.models.vllm import open_engine
from app.prompt import PromptTemplate
from app.settings import Settings
from benchmarks.choices import CONTEXTS
from ragcache.cache import ChunkCache
from ragcache.keeping import Keeper
from ragcache.policy import LinkWhen
from ragcache.store import open_store
from ragcache.store.base import KVStore

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine


@contextmanager
def open_vllm(settings: Settings, *, when: LinkWhen = "always", **options: Any) -> Iterator[VllmModel]:
    """Compiled, as vLLM starts by default; `options` are engine arguments. One at a time; it links from nothing
    until `use_store` names a store. `when`: chunks are linked; a figure of linking is none of what was not linked.
    """
    folder = resolve_model(settings.model, settings.cache_dir)
    template = PromptTemplate(load_tokenizer(folder), settings.system_prompt)
    engine = open_engine(settings.model_copy(update={"link_when": when}), folder, **{"enforce_eager": False, **options})
    model = VllmModel(settings, engine, template)
    try:
        yield model
    finally:
        model.close()


def empty_store(settings: Settings) -> KVStore:
    """In RAM."""
    return open_store(codec=settings.codec)


def vllm_cache(engine: VllmEngine, store: KVStore, context: str, keeper: Keeper | None = None) -> ChunkCache:
    """The linker is given with each prompt. What a prompt lacked is captured by the keeper alone."""
    behind = CONTEXTS[context]
    return ChunkCache(engine, store, "naive", context_chunks=behind, keep_missed=keeper is not None, keeper=keeper)
