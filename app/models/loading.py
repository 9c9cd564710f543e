"""The models of the settings: the language model on its engine, the store of its KV, the embedders and the reranker.

It imports torch: `app.models` imports it when the first is asked for. vLLM is imported for an engine in it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from app.models.cores import release_helpers
from app.models.devices import resolve_device, resolve_dtype
from app.models.folders import resolve_embedder, resolve_model, resolve_reranker
from app.models.rates import RememberedRates
from app.models.vllm import open_engine, open_served
from app.prompt import PromptTemplate, open_template
from app.settings import Settings, variable
from ragcache.cache import ChunkCache
from ragcache.engine import Engine
from ragcache.engine.fingerprint import Digests, folder_fingerprint
from ragcache.engine.resources import FreeCores
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.gauge import gauge
from ragcache.errors import ConfigError
from ragcache.keeping import Keeper
from ragcache.kvgen import ChunkIngest
from ragcache.linking.base import Linker
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.policy import Rates
from ragcache.records import Basis
from ragcache.store import KVStore, open_store
from ragcache.store.disk_room import Floor
from ragcache.store.remote.bucket import shown
from retriever.embedder import Embedder

if TYPE_CHECKING:
    from ragcache.engine.vllm.base import LinkingVllm
    from ragcache.engine.vllm.engine import VllmEngine
    from retriever.sentence_model import Reranker

LOAD_LIMIT_S = 5.0  # of reading a piece, which is computed then
OF_SYSTEMS = 256 << 20  # bytes


@dataclass(frozen=True)
class ModelFiles:
    """As they were before any of them was read, so that a record of what they came to is of no others."""

    folder: Path
    basis: Basis | None


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, ready to be given a store. Close it."""

    settings: Settings
    engine: Engine
    template: PromptTemplate
    # What it was read from, where that is known.
    files: ModelFiles | None = field(default=None, kw_only=True)
    # Of the engine too: a capture of one cache waits for the answers of all.
    keeper: Keeper = field(default_factory=lambda: Keeper(release_helpers), kw_only=True)

    @property
    def rates(self) -> Rates | None:
        """What prompts are judged by before they are linked, where the engine does not do that itself."""
        return None

    @property
    def loader(self) -> Loader | None:
        """What brings cached KV, where the engine does not do that itself."""
        return None

    @property
    def plan_error(self) -> float | None:
        """How far first tokens of late came from when they were planned, as a share of what they took."""
        return None

    def cache(self, store: KVStore, linker: Linker | str | None = None, *, keep_missed: bool = True) -> ChunkCache:
        """A cache over `store`, with the linker of the settings unless another is given. Raises ConfigError."""
        return ChunkCache(
            self.engine,
            store,
            linker or self.settings.linker,
            context_chunks=self.settings.context_chunks,
            loader=self.loader,
            keep_missed=keep_missed,
            keeper=self.keeper,
            rates=self.rates,
        )

    def bare_cache(self) -> ChunkCache:
        """It computes every prompt in full; its store has room for System segments and is gone with the process."""
        store = open_store(ram_bytes=OF_SYSTEMS, codec=self.settings.codec, order=self.settings.eviction)
        return self.cache(store, "full", keep_missed=False)

    @contextmanager
    def beside(self, store: KVStore, linker: Linker) -> Iterator[ChunkCache | None]:
        """A cache for a while, beside that which serves; None where the engine's store is not ours to choose."""
        yield self.cache(store, linker, keep_missed=False)

    def ingest(self, store: KVStore) -> ChunkIngest:
        """What puts documents into `store`, and answers nothing."""
        return ChunkIngest(self.engine, store, self.settings.context_chunks)

    def close(self) -> None:
        """Capture what answers lacked, and end what runs for it; what is asked of its caches afterwards may fail. Safe
        to call twice.
        """
        self.keeper.close()


@dataclass(frozen=True)
class TorchModel(LoadedModel):
    """On the torch engine. Any number of caches may work over it."""

    engine: TorchEngine
    learnt: Rates = field(default_factory=Rates)  # of the engine, so all caches over it learn together
    cake: CakeLoader = field(default_factory=lambda: CakeLoader(DiskThreads(READERS, "ragcache-read", LOAD_LIMIT_S)))

    @property
    def rates(self) -> Rates | None:
        return self.learnt if self.settings.link_when == "sooner" else None

    @property
    def plan_error(self) -> float | None:
        return self.learnt.plan_error

    @property
    def loader(self) -> Loader | None:
        """Where all is to be linked, nothing that is cached is computed."""
        return self.cake if self.settings.link_when == "sooner" else None

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.cake.close()
            if isinstance(self.learnt, RememberedRates):
                self.learnt.write()


@dataclass(frozen=True)
class ServedModel(LoadedModel):
    """In a vLLM server of its own."""

    engine: LinkingVllm

    @contextmanager
    def beside(self, store: KVStore, linker: Linker) -> Iterator[ChunkCache | None]:
        yield None

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.engine.close()


@dataclass(frozen=True)
class VllmModel(ServedModel):
    """Inside vLLM, which links from one store at a time: a new cache is the one that counts."""

    engine: VllmEngine
    learnt: RememberedRates | None = None  # what it judges by, where that is kept for the next run

    def cache(self, store: KVStore, linker: Linker | str | None = None, *, keep_missed: bool = True) -> ChunkCache:
        cache = super().cache(store, linker, keep_missed=keep_missed)
        self.engine.use_store(store)
        return cache

    @property
    def plan_error(self) -> float | None:
        return None if self.learnt is None else self.learnt.plan_error

    @contextmanager
    def beside(self, store: KVStore, linker: Linker) -> Iterator[ChunkCache | None]:
        serving = self.engine.store
        try:
            yield self.cache(store, linker, keep_missed=False)
        finally:
            self.engine.use_store(serving)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self.learnt is not None:
                self.learnt.write()


def _remembered(settings: Settings, folder: Path, keeper: Keeper, **facts: str) -> RememberedRates:
    """Of an engine that runs as the settings say. Asked for while torch's threads are those that it computes on."""
    device = resolve_device(settings)
    facts |= {"engine": settings.engine, "device": str(device), "dtype": str(resolve_dtype(settings, device))}
    facts |= {"threads": str(torch.get_num_threads()), "codec": settings.codec, "bucket": shown(settings.remote)}
    return RememberedRates(settings.records, folder, facts, keeper.later)


def _torch_model(settings: Settings, folder: Path, template: PromptTemplate) -> TorchModel:
    device = resolve_device(settings)
    digests, records = Digests(settings.digests_file), settings.records
    engine = TorchEngine.from_folder(folder, resolve_dtype(settings, device), device, records, digests)
    keeper = Keeper(release_helpers)
    learnt = _remembered(settings, folder, keeper)
    if device.type == "cuda":
        gauge(engine, learnt)
    return TorchModel(settings, engine, template, learnt, keeper=keeper)


def _vllm_model(settings: Settings, folder: Path, template: PromptTemplate) -> VllmModel:
    keeper = Keeper(release_helpers)
    learnt = _remembered(settings, folder, keeper, compile=settings.vllm_compile)
    engine = open_engine(settings, folder)
    engine.use_rates(learnt)
    return VllmModel(settings, engine, template, learnt, keeper=keeper)


def _served_model(settings: Settings, folder: Path, template: PromptTemplate) -> ServedModel:
    store = load_store(settings.model_copy(update={"ram_bytes": 0, "remote": ""}), evicts=False)
    return ServedModel(settings, open_served(settings, folder, store), template, keeper=Keeper(release_helpers))


ENGINES: Mapping[str, Callable[[Settings, Path, PromptTemplate], LoadedModel]] = {
    "torch": _torch_model,
    "vllm": _vllm_model,
    "vllm-server": _served_model,
}


def load_model(settings: Settings) -> LoadedModel:
    """The model of the settings on their engine, converted first where that is needed. Raises ConfigError and
    ModelError.
    """
    files, template = _prepare(settings)
    return replace(ENGINES[settings.engine](settings, files.folder, template), files=files)


def load_torch_model(settings: Settings) -> TorchModel:
    """The same for what needs the torch engine's insides. Raises ConfigError for another one."""
    files, template = _prepare(settings)
    if settings.engine != "torch":
        raise ConfigError(f"{variable('engine')}={settings.engine!r} does not run this: choose torch")
    return replace(_torch_model(settings, files.folder, template), files=files)


def _prepare(settings: Settings) -> tuple[ModelFiles, PromptTemplate]:
    if settings.engine not in ENGINES:
        raise ConfigError(f"{variable('engine')}={settings.engine!r}: choose from {', '.join(ENGINES)}")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    folder = resolve_model(settings.model, settings.cache_dir)
    return ModelFiles(folder, settings.records.basis(folder)), open_template(settings)


def load_store(settings: Settings, *, evicts: bool = True, floor: Floor | None = None) -> KVStore:
    """The store of the settings; a new one starts with nothing in RAM, and everything that is on the disk. `floor`:
    in place of that of the settings.
    """
    return open_store(
        settings.kv_folder,
        ram_bytes=settings.ram_bytes,
        disk_bytes=settings.disk_bytes,
        codec=settings.codec,
        order=settings.eviction,
        disk_floor=settings.disk_floor if floor is None else floor,
        evicts=evicts,
        remote=settings.remote,
        remote_bytes=settings.remote_bytes,
        variants=settings.variants,
    )


def fingerprint_of(settings: Settings, folder: Path) -> str:
    """As the engine names itself once it is loaded. The weights are read for their checksum alone, and once."""
    dtype = resolve_dtype(settings, resolve_device(settings))
    return folder_fingerprint(folder, dtype, Digests(settings.digests_file))


def load_embedder(settings: Settings, kind: type[Embedder] = Embedder) -> Embedder:
    device = resolve_device(settings)
    narrow = resolve_dtype(settings, device) is torch.bfloat16
    return kind(resolve_embedder(settings.embedder), str(device), narrow=narrow, around=FreeCores().lent)


def load_reranker(settings: Settings) -> Reranker | None:
    if settings.reranker is None:
        return None
    from retriever.sentence_model import Reranker  # it imports sentence-transformers

    return Reranker(resolve_reranker(settings.reranker), str(resolve_device(settings)))
