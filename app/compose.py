"""The composition root: from settings to the parts that work together. Nothing else builds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from app.devices import is_narrow, resolve_device, resolve_dtype
from app.folders import kv_folder as kv_folder
from app.models import resolve_embedder, resolve_model
from app.prompt import PromptTemplate, load_tokenizer
from app.settings import Settings, variable
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError
from ragcache.linking.base import Linker
from ragcache.store import KVStore, open_store
from retriever.embedder import Embedder


@dataclass(frozen=True)
class Parts:
    """A model with its tokenizer, ready to be given stores."""

    settings: Settings
    engine: TorchEngine
    template: PromptTemplate

    def cache(self, store: KVStore, linker: Linker | str | None = None, *, keep_missed: bool = True) -> ChunkCache:
        """A cache over `store`, with the linker of the settings unless another is given."""
        return ChunkCache(
            self.engine,
            store,
            linker or self.settings.linker,
            context_chunks=self.settings.context_chunks,
            keep_missed=keep_missed,
        )


def _torch_engine(settings: Settings, folder: Path) -> TorchEngine:
    device = resolve_device(settings)
    return TorchEngine.from_folder(folder, resolve_dtype(settings, device), device)


ENGINES: Mapping[str, Callable[[Settings, Path], TorchEngine]] = {"torch": _torch_engine}


def load_parts(settings: Settings) -> Parts:
    """The model of the settings, converted first where that is needed. Raises ConfigError and ModelError."""
    if settings.engine not in ENGINES:
        raise ConfigError(f"{variable('engine')}={settings.engine!r}: choose from {', '.join(ENGINES)}")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    folder = resolve_model(settings.model, settings.cache_dir)
    template = PromptTemplate(load_tokenizer(folder), settings.system_prompt)
    return Parts(settings, ENGINES[settings.engine](settings, folder), template)


def load_store(settings: Settings) -> KVStore:
    """The store of the settings; a new one starts with nothing in RAM, and everything that is on the disk."""
    return open_store(kv_folder(settings), settings.ram_bytes, settings.disk_bytes, settings.codec)


def load_embedder(settings: Settings) -> Embedder:
    device = resolve_device(settings)
    return Embedder(resolve_embedder(settings.embedder), str(device), narrow=is_narrow(settings, device))
